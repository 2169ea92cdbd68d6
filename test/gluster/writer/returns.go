package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"saltern/master/crypt"
	"saltern/master/jobs"
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

// returned looks for each return of DIR/taken in a job cache, and waits a while
// for those that are still on their way.
func returned(dir, cache string) error {
	f, err := os.Open(filepath.Join(dir, "taken"))
	if err != nil {
		return err
	}
	defer f.Close()

	end := time.Now().Add(retryFor)
	all, missing := 0, []string(nil)
	for lines := bufio.NewScanner(f); lines.Scan(); all++ {
		w := strings.Fields(lines.Text())
		if len(w) != 3 {
			return fmt.Errorf("what is %q?", lines.Text())
		}

		h := sha256.Sum256([]byte(w[0]))
		text := hex.EncodeToString(h[:])
		path := filepath.Join(cache, text[:2], text[2:], w[1], "return.p")
		for {
			b, err := os.ReadFile(path)
			if err == nil && bytes.Contains(b, []byte(w[2])) {
				break
			}
			if time.Now().After(end) {
				missing = append(missing, fmt.Sprintf("%s: %v", lines.Text(), err))
				break
			}

			time.Sleep(100 * time.Millisecond)
		}
	}

	fmt.Printf("%d returns were taken, %d are missing\n", all, len(missing))
	if len(missing) > 0 || all == 0 {
		return fmt.Errorf("missing in %s: %s", cache, strings.Join(missing[:min(5, len(missing))], "; "))
	}

	return nil
}
