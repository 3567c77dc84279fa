// A progress bar: drawn in place on a terminal, a line at a time elsewhere.

const WIDTH = 30;
const COLUMNS = 80;

/** Shows how much of something is done, on standard output. */
export class Bar {
  readonly #title: string;
  readonly #inPlace = process.stdout.isTTY;
  #last = "";

  constructor(title: string) {
    this.#title = title;
  }

  /** Draws the bar at a share of 0..1, with a word on what is at work. */
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

  /** Says something beside it, on a line of its own. */
  note(text: string): void {
    process.stdout.write(this.#inPlace ? `\r\x1b[K${text}\n` : `${text}\n`);
    this.#last = "";
  }

  /** Ends its line. */
  end(): void {
    if (this.#inPlace && this.#last !== "") {
      process.stdout.write("\n");
    }
  }
}
