package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// progressBar shows how many minions have returned, in the form of Salt's progress bar
// (salt/output/progress.py):
//
//	50% |##########          | Elapsed Time: 0:00:01 Returns: [1/2]
type progressBar struct {
	out     io.Writer
	columns int // width of the bar in columns
	total   int // number of minions of the job
	count   int // number of minions that have returned
	began   time.Time
}

// add counts a return. The count may exceed total, because a job can reach minions below syndics
// that the master does not know.
func (b *progressBar) add() {
	b.count++
	b.total = max(b.total, b.count)
	b.show()
}

// show draws the line again.
func (b *progressBar) show() {
	total := max(b.total, 1)
	took := time.Since(b.began)
	left := fmt.Sprintf("%3d%% |", 100*b.count/total)
	right := fmt.Sprintf("| Elapsed Time: %d:%02d:%02d Returns: [%d/%d]", int(took.Hours()), int(took.Minutes())%60,
		int(took.Seconds())%60, b.count, b.total)

	width := max(b.columns-len(left)-len(right), 10)
	done := width * b.count / total
	fmt.Fprint(b.out, "\r"+left+strings.Repeat("#", done)+strings.Repeat(" ", width-done)+right)
}

// end ends the line.
func (b *progressBar) end() { fmt.Fprintln(b.out) }
