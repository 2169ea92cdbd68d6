package keys

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// filers is how many key files fileBatch creates at once. Key files that are created at the same
// time share the syncs of their folder.
const filers = 4

// Times of filing that tests do not change.
const (
	fileTick = 250 * time.Millisecond // pause between checks while batches exist
	markKept = time.Hour              // time after which a mark without a batch is removed
)

// fileLoop creates the key files of claimed keys until ctx ends. After each batch it pauses for as
// long as the batch took, so that sign-ins take precedence. When more than half of maxBatches
// exist, it works without pauses.
func (s *Store) fileLoop(ctx context.Context) {
	in, failing := s.incoming, false
	wait := func(d time.Duration) bool {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return true
		case <-ctx.Done():
			return false
		}
	}

	for ctx.Err() == nil {
		b, hurry, idle := in.nextDue(time.Now())
		if b == nil {
			in.removeFiled(time.Now())
			if !idle {
				wait(fileTick)
				continue
			}

			select {
			case <-in.batchSignal:
			case <-time.After(time.Minute):
			case <-ctx.Done():
			}

			continue
		}

		begin := time.Now()
		err := s.fileBatch(ctx, b)
		switch {
		case err != nil && ctx.Err() == nil:
			if !failing {
				s.log.Error("new keys cannot be made files yet; they stay in incoming files and are tried again",
					"path", s.dir, "error", err)
			}

			failing = true
			in.mu.Lock()
			b.retryAt = time.Now().Add(in.retry)
			in.mu.Unlock()

			wait(fileTick)
			continue
		case err == nil && failing:
			s.log.Info("new keys are made files again", "path", s.dir)
			failing = false
		}

		if !hurry {
			wait(time.Since(begin))
		}
	}
}

// nextDue returns the next batch whose keys must become files, or nil when none is due. hurry means
// that more than half of maxBatches exist. idle means that no batch exists.
func (in *incoming) nextDue(now time.Time) (b *batch, hurry, idle bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	hurry = in.ownBatches > maxBatches/2
	for _, o := range in.batches {
		if !o.exists || !o.filedAt.IsZero() || now.Before(o.retryAt) {
			continue
		}
		if b != nil && cmp.Or(b.retryAt.Compare(o.retryAt), strings.Compare(b.timeText, o.timeText)) < 0 {
			continue // prefer a batch that was not tried yet, and an old batch to a young one
		}

		switch age := now.Sub(o.since); {
		case o.isOwn && (hurry || age >= in.late || now.Sub(in.newest) >= in.quiet):
			b = o
		case !o.isOwn && in.master != "" && age >= in.foreign:
			b = o
		}
	}

	return b, hurry, len(in.batches) == 0
}

// fileBatch creates the files of a batch's keys.
func (s *Store) fileBatch(ctx context.Context, b *batch) error {
	if err := s.incoming.listFresh(); err != nil { // keys may have been removed since the batch was written
		return err
	}

	var mu sync.Mutex
	var first error
	work := make(chan *claim)
	var wg sync.WaitGroup
	for range min(filers, len(b.claims)) {
		wg.Go(func() {
			for c := range work {
				if err := s.settle1(c); err != nil {
					mu.Lock()
					first = err
					mu.Unlock()
				}
			}
		})
	}

	for _, c := range b.claims {
		if ctx.Err() != nil {
			break
		}
		work <- c
	}

	close(work)
	wg.Wait()
	if first != nil || ctx.Err() != nil {
		return first
	}

	s.incoming.mu.Lock()
	defer s.incoming.mu.Unlock()
	b.filedAt = time.Now()
	return nil
}

func (s *Store) settle1(c *claim) error {
	defer s.lockID(c.id)()
	return s.fileClaim(c)
}

// removeFiled removes the incoming files of batches, and the marks, that no master needs any more.
// A filed batch remains for linger, and a mark for longer, because other masters may be filing the
// same batch and must see that it was filed or that a key was removed.
func (in *incoming) removeFiled(now time.Time) {
	var gone []string
	in.mu.Lock()
	tokens := map[string]bool{}
	for _, b := range in.batches {
		tokens[b.token] = true
		if b.filedAt.IsZero() || !b.exists {
			continue
		}
		if now.Sub(b.filedAt) >= in.linger && (b.isOwn || now.Sub(b.since) >= 3*in.foreign) {
			gone = append(gone, b.name)
		}
	}

	for name, since := range in.marks {
		if !tokens[removedName.FindStringSubmatch(name)[1]] && now.Sub(since) >= markKept && in.master != "" {
			gone = append(gone, name)
		}
	}
	in.mu.Unlock()

	for _, name := range gone {
		err := os.Remove(filepath.Join(in.dir, name))
		if os.IsNotExist(err) { // not there, or the volume is not mounted
			_, err = os.Stat(in.dir)
		}

		if err != nil {
			return // the next call tries again
		}

		in.mu.Lock()
		if b := in.batches[name]; b != nil {
			in.forget(b)
		}

		delete(in.marks, name)
		in.mu.Unlock()
	}
}
