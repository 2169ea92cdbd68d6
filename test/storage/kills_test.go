//go:build e2e

package storage

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// kills are those of applianced at the steps of its log.
type kills struct {
	h      *hosts
	name   func(step string) string
	at     map[string]int // node by name of the step at which it was killed
	offset map[int]int    // what was read of each node's log
	// meanwhile is called when applianced of node i was killed at the step of that
	// name, before it is started again.
	meanwhile map[string]func(i int)
}

// kills begins where the logs end now. name gives what is to be hit only once.
func (h *hosts) kills(t *testing.T, name func(string) string, list ...int) *kills {
	t.Helper()
	k := &kills{h: h, name: name, at: map[string]int{}, offset: map[int]int{}, meanwhile: map[string]func(int){}}
	for _, i := range list {
		b, err := os.ReadFile(h.path(i, "log"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		k.offset[i] = len(b)
	}
	return k
}

// wholeStep is a step with what it is about and why: directories are made twice.
func wholeStep(step string) string { return step }

// recordOfCopies is the kind of a step that remembers that several copies are
// complete.
const recordOfCopies = "record of copies"

// kindOfStep is the first word of its name.
func kindOfStep(step string) string {
	if name, _, ok := strings.Cut(strings.TrimPrefix(step, `"`), `"`); ok && step[0] == '"' {
		step = name
	}
	word, rest, _ := strings.Cut(step, " ")
	if word == "record" && strings.Contains(rest, ",") {
		return recordOfCopies
	}
	return word
}

// until kills applianced on whichever node of the list logs a step at which
// nobody was killed yet, and starts it again, until the volume has so many
// copies and nothing is left to be done.
func (k *kills) until(t *testing.T, copies int, list ...int) {
	t.Helper()
	start, looked := time.Now(), time.Now()
	for {
		again := false
		for _, i := range list {
			b, err := os.ReadFile(k.h.path(i, "log"))
			if err != nil {
				t.Fatal(err)
			}

			for line := range strings.Lines(string(b[k.offset[i]:])) {
				_, step, ok := strings.Cut(line, `msg="storage step" step=`)
				name := k.name(strings.TrimSpace(step))
				if _, twice := k.at[name]; !ok || twice {
					continue
				}

				k.at[name] = i
				k.h.killNode(t, i)
				if f := k.meanwhile[name]; f != nil {
					f(i)
				}

				k.h.start(t, i)
				again = true
				break
			}

			k.offset[i] = strings.LastIndexByte(string(b), '\n') + 1
		}

		if again || time.Since(looked) < 2*time.Second {
			time.Sleep(20 * time.Millisecond)
			continue
		}

		looked = time.Now()
		var err error
		for _, i := range list {
			if err = k.h.unsettled(i, copies); err != nil {
				break
			}
		}

		if err == nil {
			t.Logf("%d copies after %.0f s and %d kills", copies, time.Since(start).Seconds(), len(k.at))
			return
		}
		if time.Since(start) > lab.Limit(15*time.Minute) {
			t.Fatalf("not settled: %v", err)
		}
	}
}

// hit checks that applianced was killed at each of some steps, given by how
// their names begin.
func (k *kills) hit(t *testing.T, steps ...string) {
	t.Helper()
	names := slices.Collect(maps.Keys(k.at))
	for _, step := range steps {
		if !slices.ContainsFunc(names, func(s string) bool { return strings.HasPrefix(s, step) }) {
			t.Errorf("no kill at %s: %v", step, k.at)
		}
	}
}
