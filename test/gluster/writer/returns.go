package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"saltern/master/crypt"
	"saltern/master/jobs"
	"saltern/master/value"
	"saltern/test/minion"
)

const (
	players     = 40
	returnEvery = 200 * time.Millisecond // of each: 200 a second together
	tryFor      = 3 * time.Second        // then another master is asked
)

// play is what returns finds in DIR/play.json.
type play struct {
	Key     string   `json:"key"`     // file with the public key of the masters
	Masters []string `json:"masters"` // addresses of their request ports
}

// taker counts what the masters took. DIR/taken has a line for each return:
// job, minion, value. DIR/count says how many there are.
type taker struct {
	mu    sync.Mutex
	r     result
	taken *bufio.Writer
	late  map[*int64]bool // of the returns that are under way
}

// returns plays minions that sign in at one of the masters and send returns
// until each is taken, by whichever master.
func returns(dir string, for_ time.Duration) error {
	var p play
	b, err := os.ReadFile(filepath.Join(dir, "play.json"))
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err == nil {
		b, err = os.ReadFile(p.Key)
	}

	if err != nil {
		return err
	}

	master, err := crypt.ParsePublic(b)
	if err != nil {
		return err
	}

	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}

	f, err := os.Create(filepath.Join(dir, "taken"))
	if err != nil {
		return err
	}
	defer f.Close()

	k := &taker{taken: bufio.NewWriter(f), late: map[*int64]bool{}}
	end := lateness(k.wasLate)
	defer end()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, for_)
	defer cancel()

	begun := time.Now()
	var wg sync.WaitGroup
	for n := range players {
		m, err := minion.New(minion.Config{ID: fmt.Sprintf("player%d", n), Key: key, Master: master})
		if err != nil {
			return err
		}

		wg.Go(func() {
			defer m.Close()
			k.play(ctx, m, p.Masters, n, begun)
		})
	}

	wg.Wait()
	k.r.Seconds = time.Since(begun).Seconds()
	if err := k.taken.Flush(); err != nil {
		return err
	}

	return json.NewEncoder(os.Stdout).Encode(k.r)
}

// wasLate is told how late the machine was.
func (k *taker) wasLate(ms int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for l := range k.late {
		*l = max(*l, ms)
	}
}

func (k *taker) play(ctx context.Context, m *minion.Minion, masters []string, n int, begun time.Time) {
	turn := n
	next := func() {
		m.Close()
		turn++
		m.Request = masters[turn%len(masters)]
	}

	next()
	signIn := func() {
		for ctx.Err() == nil {
			one, cancel := context.WithTimeout(ctx, 2*tryFor)
			err := m.SignIn(one)
			cancel()
			if err == nil {
				return
			}

			next()
			pause(ctx, 200*time.Millisecond)
		}
	}

	signIn()
	tick := time.NewTicker(returnEvery)
	defer tick.Stop()

	for last := ""; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}

		jid := jobs.FromTime(begun.Add(time.Since(begun).Truncate(returnEvery)))
		if jid == last { // a minion returns a job once
			continue
		}

		last = jid
		value := minion.Nonce()
		start := time.Now()
		late := new(int64)
		k.mu.Lock()
		k.late[late] = true
		k.mu.Unlock()

		err := errors.New("not sent")
		for err != nil && ctx.Err() == nil {
			one, cancel := context.WithTimeout(ctx, tryFor)
			err = m.Return(one, jid, "test.ping", value)
			cancel()
			switch {
			case errors.Is(err, minion.ErrRefused):
				signIn()
			case err != nil:
				next()
				pause(ctx, 100*time.Millisecond)
			}
		}

		k.mu.Lock()
		delete(k.late, late)
		if err == nil {
			k.r.Kept++
			if took := time.Since(start).Milliseconds(); took > k.r.Longest {
				k.r.Longest, k.r.Late = took, *late
			}
			fmt.Fprintln(k.taken, jid, m.ID, value)
		}
		k.mu.Unlock()
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// takenReturn is a line of DIR/taken.
type takenReturn struct{ jid, minion, value string }

// readTaken reads DIR/taken.
func readTaken(dir string) (taken []takenReturn, err error) {
	b, err := os.ReadFile(filepath.Join(dir, "taken"))
	if err != nil {
		return nil, err
	}

	for line := range strings.Lines(string(b)) {
		w := strings.Fields(line)
		if len(w) != 3 {
			return nil, fmt.Errorf("what is %q?", line)
		}
		taken = append(taken, takenReturn{
			jid:    w[0],
			minion: w[1],
			value:  w[2],
		})
	}

	if len(taken) == 0 {
		return nil, errors.New("no return was taken")
	}
	return taken, nil
}

// lookups is how many jobs returned looks up one by one.
const lookups = 20

// returned looks for each return of DIR/taken in the segments of a job cache, and waits a while for those that come late.
// It reads a copy of the segments, as a master does that starts. The running master looks up some of the jobs.
func returned(dir, cache, saltRun, conf string) error {
	taken, err := readTaken(dir)
	if err != nil {
		return err
	}

	missing := taken
	for end := time.Now().Add(retryFor); ; {
		before := len(missing)
		missing, err = missingIn(cache, taken)
		if err == nil && len(missing) < before { // it reads them
			end = time.Now().Add(retryFor)
		}
		if err == nil && len(missing) == 0 || time.Now().After(end) {
			break
		}
		time.Sleep(time.Second)
	}

	fmt.Printf("%d returns were taken, %d are missing\n", len(taken), len(missing))
	if err != nil {
		return fmt.Errorf("read the segments of %s: %w", cache, err)
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing in %s: %v", cache, missing[:min(5, len(missing))])
	}
	return lookUp(taken, func(jid string) ([]byte, error) {
		return exec.Command(saltRun, "-c", conf, "--out=json", "jobs.lookup_jid", jid).CombinedOutput()
	})
}

// missingIn returns the returns that the segments of a job cache lack.
func missingIn(cache string, taken []takenReturn) (missing []takenReturn, err error) {
	dir, err := os.MkdirTemp("", "returned")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)

	journal := filepath.Join(dir, "journal")
	if err := os.CopyFS(journal, os.DirFS(cache+".journal")); err != nil {
		return nil, err
	}
	found, err := jobs.Open(jobs.Config{
		Dir:        filepath.Join(dir, "jobs"),
		JournalDir: journal,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, found.Close(context.Background())) }()

	returns := map[string]*value.Map{}
	for _, r := range taken {
		if returns[r.jid] == nil {
			if returns[r.jid], err = found.Returns(context.Background(), r.jid); err != nil {
				return nil, err
			}
		}
		if returns[r.jid].Map(r.minion).Str("return") != r.value {
			missing = append(missing, r)
		}
	}
	return missing, nil
}

// lookUp looks up some of the jobs, each with all of its returns.
func lookUp(taken []takenReturn, run func(jid string) ([]byte, error)) error {
	values := map[string]map[string]string{} // by job and minion
	for _, r := range taken {
		if values[r.jid] == nil {
			values[r.jid] = map[string]string{}
		}
		values[r.jid][r.minion] = r.value
	}

	jids := slices.Sorted(maps.Keys(values))
	for i := 0; i < len(jids); i += max(1, len(jids)/lookups) {
		out, err := run(jids[i])
		if err != nil {
			return fmt.Errorf("jobs.lookup_jid %s: %w: %s", jids[i], err, out)
		}
		var found map[string]string
		if err := json.Unmarshal(out, &found); err != nil {
			return fmt.Errorf("jobs.lookup_jid %s: %w: %s", jids[i], err, out)
		}
		for minion, value := range values[jids[i]] {
			if found[minion] != value {
				return fmt.Errorf("jobs.lookup_jid %s: the return of %s is %q, want %q", jids[i], minion, found[minion], value)
			}
		}
	}

	return nil
}
