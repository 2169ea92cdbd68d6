package history

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/test/await"
	"saltern/test/check"
	"saltern/test/logged"
)

// segmentWithReturns makes a history of one sealed segment with several chunks, and returns its runs.
func segmentWithReturns(t *testing.T, dir string, runs int) (want model) {
	t.Helper()
	s := open(t, Config{Dir: dir, segmentRuns: runs})
	for i := range runs {
		run := plainRun("web", begin.Add(time.Duration(i)*time.Second))
		run.Return = noise(16 << 10)
		want.append(run)
		check.Must(t, s.Append(run))
	}
	check.Must(t, s.Sync())
	check.Must(t, s.seal())
	check.Must(t, s.Close())
	return want
}

// flipRows changes a byte in the rows of one chunk of a sealed segment.
func flipRows(t *testing.T, path string, chunk int) {
	t.Helper()
	packed, err := os.ReadFile(path)
	check.Must(t, err)
	seen := 0
	_, err = scanFrames(bytes.NewReader(packed), mark(packed[len(segmentMagic):]), int64(len(packed)), func(f *frame) error {
		if f.kind != kindChunk {
			return nil
		}
		if seen == chunk {
			packed[f.offset+int64(frameHead)+int64(f.packedRows)/2] ^= 1
		}
		seen++
		return nil
	})
	check.Must(t, err)
	if seen <= chunk {
		t.Fatalf("the segment has %d chunks", seen)
	}
	check.Must(t, os.WriteFile(path, packed, 0o600))
}

// TestRestoreMendsADamagedSegment: the node's own copy of a segment has lost a chunk, and a backup has it.
func TestRestoreMendsADamagedSegment(t *testing.T) {
	for chunk := range 3 {
		t.Run(fmt.Sprint(chunk), func(t *testing.T) {
			source, node := t.TempDir(), t.TempDir()
			want := segmentWithReturns(t, source, 60)
			check.Must(t, os.CopyFS(node, os.DirFS(source)))
			flipRows(t, newestFile(t, node), chunk)
			restoreInto(t, source, node, "one")

			for range 2 { // the second start finds nothing to do
				s := open(t, Config{Dir: node})
				restored(t, s)
				compare(t, "all runs", all(t, s, Filter{Returns: true}, 100), want.query(Filter{}))
				check.Must(t, s.Close())
			}
		})
	}
}

// TestMergeTakesAllThatIsMissing: the clock jumps by 20 years while the missing runs are written, which would end
// a segment of a node.
func TestMergeTakesAllThatIsMissing(t *testing.T) {
	source, node := t.TempDir(), t.TempDir()
	want := segmentWithReturns(t, source, 120)
	s := open(t, Config{Dir: node})
	for i := 0; i < len(want); i += 3 {
		check.Must(t, s.Append(want[i]))
	}
	check.Must(t, s.Close())
	restoreInto(t, source, node, "one")

	var mu sync.Mutex
	r := rand.New(rand.NewPCG(1, 5))
	const keep = 100 * 365 * 24 * time.Hour
	s = open(t, Config{Dir: node, Keep: keep, Now: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return begin.AddDate(20*r.IntN(2), 0, 0)
	}})
	restored(t, s)
	compare(t, "all runs", all(t, s, Filter{Returns: true}, 100), want.query(Filter{}))
}

// TestPartOfARestoredSegmentIsUnreadable: the runs that can be read are taken in, and the file stays, which the
// log says at each start.
func TestPartOfARestoredSegmentIsUnreadable(t *testing.T) {
	source, node := t.TempDir(), t.TempDir()
	want := segmentWithReturns(t, source, 60)
	s := open(t, Config{Dir: node})
	check.Must(t, s.Append(want[0]))
	check.Must(t, s.Close())
	flipRows(t, newestFile(t, source), 2)
	restoreInto(t, source, node, "one")

	runs := 0
	for range 2 {
		var log logged.Buffer
		s = open(t, Config{Dir: node, Log: slog.New(slog.NewTextHandler(&log, nil))})
		await.That(t, "the log says that the file stays", func() bool { return strings.Contains(log.String(), "its file stays") })
		left, _ := filepath.Glob(filepath.Join(node, control.RestoredHistory+"*"))
		if len(left) != 1 {
			t.Errorf("left: %v", left)
		}
		got := s.Stats()
		if got.Runs < 30 || got.Runs >= len(want) || got.Damaged == 0 || runs > 0 && got.Runs != runs {
			t.Errorf("%+v, %d runs before", got, runs)
		}
		runs = got.Runs
		check.Must(t, s.Close())
	}
}

// TestRunArrivesDuringMerge: a run that a merge found missing arrives before the merge ends. It is stored once.
func TestRunArrivesDuringMerge(t *testing.T) {
	for _, late := range []int{1, 59} { // in the middle, and with all others missing
		t.Run(fmt.Sprint(late), func(t *testing.T) {
			source, node := t.TempDir(), t.TempDir()
			want := segmentWithReturns(t, source, 60)
			s := open(t, Config{Dir: node})
			check.Must(t, s.Append(want[0]))
			check.Must(t, s.Close())
			restoreInto(t, source, node, "one")

			opened := make(chan *Store, 1)
			merges := 0
			s = open(t, Config{Dir: node, fault: func(op string) error {
				if op != "merge" {
					return nil
				}
				merges++
				if merges > 1 {
					return nil
				}
				s := <-opened
				return errors.Join(s.Append(want[late]), s.Sync())
			}})
			opened <- s
			restored(t, s)
			compare(t, "all runs", all(t, s, Filter{Returns: true}, 100), want.query(Filter{}))
			if got := s.Stats().Runs; got != len(want) {
				t.Errorf("%d runs are stored, not %d", got, len(want))
			}
		})
	}
}
