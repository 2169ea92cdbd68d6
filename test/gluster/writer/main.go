// Command writer writes records to a directory as a master writes returns: 200
// a second, in groups that are synced before they count as kept, into segments
// of one second, until its time is over or it is told to end (SIGTERM). It
// prints what was kept and how long the longest group took,
// and beside that how late the machine itself was, so that a stall of the
// volume can be told from a slow machine.
//
//	writer write DIR SECONDS     prints one result as JSON
//	writer check DIR KEPT        fails when a record below KEPT is missing or differs
//	writer change FILE SECONDS   changes one file together with other machines
//	writer returns DIR SECONDS   plays minions whose returns three masters take, see returns.go
//	writer returned DIR CACHE SALT-RUN CONF
//	                             fails when a return that was taken is not in a master's job cache
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	perGroup   = 10
	groupEvery = 50 * time.Millisecond
	perSegment = 20 // groups
	retryFor   = 60 * time.Second
)

func main() {
	isReturned := len(os.Args) == 6 && os.Args[1] == "returned"
	if len(os.Args) != 4 && !isReturned {
		fmt.Fprintln(os.Stderr,
			"usage: writer write|check|returns DIR N | change FILE SECONDS | returned DIR CACHE SALT-RUN CONF")
		os.Exit(2)
	}

	n, err := strconv.Atoi(os.Args[3])
	switch {
	case isReturned:
		err = returned(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
	case err != nil:
	case os.Args[1] == "returns":
		err = returns(os.Args[2], time.Duration(n)*time.Second)
	case os.Args[1] == "write":
		err = write(os.Args[2], time.Duration(n)*time.Second)
	case os.Args[1] == "change":
		err = change(os.Args[2], time.Duration(n)*time.Second)
	default:
		err = check(os.Args[2], n)
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// record is what number n holds.
func record(n int) string {
	return fmt.Sprintf("%08d %s\n", n, strings.Repeat(string(rune('a'+n%26)), 590))
}

type result struct {
	Kept    int     `json:"kept"`
	Seconds float64 `json:"seconds"`
	Longest int64   `json:"longest"` // ms that a group took
	Late    int64   `json:"late"`    // ms that the machine was late during that group
	Faults  int     `json:"faults"`
}

// lateness tells how late a goroutine is that touches nothing, until it is
// ended.
func lateness(tell func(ms int64)) (end func()) {
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			start := time.Now()
			select {
			case <-ended:
				return
			case <-time.After(10 * time.Millisecond):
				tell((time.Since(start) - 10*time.Millisecond).Milliseconds())
			}
		}
	})

	return func() {
		close(ended)
		wg.Wait()
	}
}

func write(dir string, for_ time.Duration) error {
	var r result
	var late atomic.Int64 // ms, at most, since the group began
	settle := lateness(func(ms int64) { late.Store(max(late.Load(), ms)) })
	enough, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	begun := time.Now()
	end := begun.Add(for_)
	tick := time.NewTicker(groupEvery)
	defer tick.Stop()

	var f *os.File
	for group := 0; time.Now().Before(end) && enough.Err() == nil; group++ {
		<-tick.C
		start := time.Now()
		late.Store(0)
		var b strings.Builder
		for i := range perGroup {
			b.WriteString(record(group*perGroup + i))
		}

		// A group that could not be kept is written again into a segment of its own:
		// a reader takes each record once.
		for try := 0; ; try++ {
			err := func() (err error) {
				if f == nil || try > 0 || group%perSegment == 0 {
					if f != nil {
						_ = f.Close() // everything that counts was synced
					}

					if f, err = os.OpenFile(filepath.Join(dir, fmt.Sprintf("s%08d-%d", group, try)),
						os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
						f = nil
						return err
					}
				}

				if _, err = f.WriteString(b.String()); err == nil {
					err = f.Sync()
				}

				return err
			}()
			if err == nil {
				break
			}

			r.Faults++
			if time.Since(start) > retryFor {
				return err
			}

			time.Sleep(100 * time.Millisecond)
		}

		if took := time.Since(start).Milliseconds(); took > r.Longest {
			r.Longest, r.Late = took, late.Load()
		}

		r.Kept = (group + 1) * perGroup
	}

	settle()
	r.Seconds = time.Since(begun).Seconds()
	if f != nil {
		if err := f.Close(); err != nil {
			return err
		}
	}

	return json.NewEncoder(os.Stdout).Encode(r)
}

func check(dir string, kept int) error {
	names, err := filepath.Glob(filepath.Join(dir, "s*"))
	if err != nil {
		return err
	}

	seen := make([]bool, kept)
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return err
		}

		for s := bufio.NewScanner(f); s.Scan(); {
			n, err := strconv.Atoi(strings.TrimLeft(s.Text()[:min(8, len(s.Text()))], "0"))
			if strings.HasPrefix(s.Text(), "00000000") {
				n, err = 0, nil
			}
			if err == nil && n < kept && s.Text()+"\n" == record(n) {
				seen[n] = true
			}
		}

		if err := f.Close(); err != nil {
			return err
		}
	}

	for n, ok := range seen {
		if !ok {
			return fmt.Errorf("record %d of %d was acknowledged and is not in %s", n, kept, dir)
		}
	}

	return nil
}
