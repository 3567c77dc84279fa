// A progress bar: redrawn in place on a terminal; otherwise one line for each step.

const WIDTH = 30;
const COLUMNS = 80;

/** Shows progress on standard output. */
export class Bar {
  readonly #title: string;
  readonly #inPlace = process.stdout.isTTY;
  #last = "";

  constructor(title: string) {
    this.#title = title;
  }

  /** Draws the bar for a share of 0..1, with the current item. */
  show(share: number, text: string): void {
    const filled = Math.round(WIDTH * Math.min(Math.max(share, 0), 1));
    const percent = `${Math.round(share * 100)}%`.padStart(4);
    const whole = `${this.#title}  [${"#".repeat(filled)}${".".repeat(WIDTH - filled)}] ${percent}  ${text}`;
    const line = this.#inPlace ? whole.slice(0, (process.stdout.columns || COLUMNS) - 1) : whole;
    if (line !== this.#last) {
      process.stdout.write(this.#inPlace ? `\r\x1b[K${line}` : `${line}\n`);
      this.#last = line;
    }
  }

  /** Prints a message on a separate line. */
  note(text: string): void {
    process.stdout.write(this.#inPlace ? `\r\x1b[K${text}\n` : `${text}\n`);
    this.#last = "";
  }

  /** Ends the line of the bar. */
  end(): void {
    if (this.#inPlace && this.#last !== "") {
      process.stdout.write("\n");
    }
  }
}
