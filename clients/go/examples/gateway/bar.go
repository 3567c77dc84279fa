package main

import (
	"fmt"
	"os"
	"strings"

	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

const barWidth = 30

// bar shows the progress of a sync: redrawn in place on a terminal; otherwise one line for each phase and each 10 %.
type bar struct {
	to         *os.File
	inPlace    bool
	drawn      bool
	lastPlain  string
	lastLength int
}

func newBar(to *os.File) *bar {
	about, err := to.Stat()
	return &bar{to: to, inPlace: err == nil && about.Mode()&os.ModeCharDevice != 0}
}

func (b *bar) show(progress *memorydv1.SyncProgress) {
	done, total := int(progress.GetCompletedFiles()), int(progress.GetTotalFiles())
	stage := strings.ToLower(strings.TrimPrefix(progress.GetPhase().String(), "SYNC_PHASE_"))
	text := stage + " ..."
	share := 0.0
	if total > 0 {
		share = float64(done) / float64(total)
		text = fmt.Sprintf("%s %d of %d files", stage, done, total)
	}
	if eta := progress.GetEta(); eta != nil {
		text += fmt.Sprintf(", about %.0f s left", eta.AsDuration().Seconds())
	}
	if b.inPlace {
		b.draw(share, text)
		return
	}
	if plain := fmt.Sprint(stage, int(10*share)); plain != b.lastPlain {
		fmt.Fprintln(b.to, text)
		b.lastPlain = plain
	}
}

// say prints a line above the bar.
func (b *bar) say(line string) {
	b.clear()
	fmt.Fprintln(b.to, line)
}

// end removes the bar.
func (b *bar) end() {
	b.clear()
}

func (b *bar) draw(share float64, text string) {
	full := min(barWidth, int(share*barWidth))
	line := fmt.Sprintf("[%s%s] %3.0f%%  %s", strings.Repeat("#", full), strings.Repeat("-", barWidth-full), 100*share, text)
	fmt.Fprintf(b.to, "\r%s%s", line, strings.Repeat(" ", max(0, b.lastLength-len(line))))
	b.drawn, b.lastLength = true, len(line)
}

func (b *bar) clear() {
	if b.drawn {
		fmt.Fprintf(b.to, "\r%s\r", strings.Repeat(" ", b.lastLength))
		b.drawn, b.lastLength = false, 0
	}
}
