package main

import (
	"errors"
	"os"
	"strconv"
	"strings"
)

// machine is the time of all processors so far, in ticks (proc(5), stat).
type machine struct{ busy, total float64 }

// Fields of the first line of /proc/stat that are no work: idle and iowait.
// Those from guest on are in others already.
const (
	fieldIdle   = 3
	fieldIOWait = 4
	fieldGuest  = 8
)

func readMachine() (m machine, err error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return m, err
	}

	line, _, _ := strings.Cut(string(b), "\n")
	fields := strings.Fields(line)
	if len(fields) <= fieldGuest {
		return m, errors.New("/proc/stat has another form")
	}

	for i, f := range fields[1 : fieldGuest+1] {
		ticks, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return m, err
		}

		m.total += ticks
		if i != fieldIdle && i != fieldIOWait {
			m.busy += ticks
		}
	}

	return m, nil
}

// busySince is the percentage of the time since then that was spent on work, of
// whomever.
func (m machine) busySince(then machine) float64 {
	return 100 * (m.busy - then.busy) / max(m.total-then.total, 1)
}
