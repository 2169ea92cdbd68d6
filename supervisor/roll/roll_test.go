package roll

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A second roll is refused while one is under way; its progress shows what it does, and its
// result stays until the next one.
func TestDriverMakesOneRollAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDriver[string](time.Now)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); d.Run(ctx) }()

		for round := range 2 {
			held := make(chan struct{})
			ended, err := d.Begin(t.Context(), Roll[string]{What: "first", Make: func(_ context.Context, note func(string)) string {
				for i := range maxSteps + 5 {
					note(fmt.Sprint(i))
				}
				<-held
				return "well"
			}})
			if err != nil {
				t.Fatal(err)
			}

			synctest.Wait()
			if _, err := d.Begin(t.Context(), Roll[string]{What: "second"}); !errors.Is(err, ErrRunning) {
				t.Errorf("round %d: a second roll: %v", round, err)
			}
			if p := d.Progress(); !p.Running || p.What != "first" || len(p.Lines) != maxSteps || p.Result != nil {
				t.Errorf("round %d: running %v, %q, %d lines", round, p.Running, p.What, len(p.Lines))
			}

			close(held)
			if got := <-ended; got != "well" {
				t.Errorf("round %d: %q", round, got)
			}
			if p := d.Progress(); p.Running || p.Result == nil || *p.Result != "well" {
				t.Errorf("round %d: %+v", round, p.Result)
			}
		}

		stop()
		<-done

		// Without the loop nobody is left waiting.
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := d.Begin(late, Roll[string]{What: "third"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a loop: %v", err)
		}
	})
}

// All nodes are asked at the same time, each within the limit.
// TestBeginOfACrowd: of many who begin a roll at once, one does, and each other learns at once that
// one is under way, also while nobody makes rolls yet.
func TestBeginOfACrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDriver[string](time.Now)
		made := 0
		long := Roll[string]{Make: func(context.Context, func(string)) string {
			made++
			time.Sleep(time.Hour)
			return ""
		}}
		errs := make(chan error, 3000)
		for range cap(errs) {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				_, err := d.Begin(ctx, long)
				errs <- err
			}()
		}

		synctest.Wait()
		if len(errs) != cap(errs)-1 {
			t.Errorf("%d callers wait", cap(errs)-len(errs))
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); d.Run(ctx) }()

		begun := 0
		for range cap(errs) {
			switch err := <-errs; {
			case err == nil:
				begun++
			case !errors.Is(err, ErrRunning):
				t.Fatalf("a caller is told %v", err)
			}
		}
		stop()
		<-done
		if begun != 1 || made != 1 {
			t.Errorf("%d began a roll, %d were made", begun, made)
		}
	})
}

func TestEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		errs := Each(t.Context(), []int{1, 2, 30}, 10*time.Second, func(ctx context.Context, n int) error {
			select {
			case <-time.After(time.Duration(n) * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		late := []bool{errs[0] != nil, errs[1] != nil, errors.Is(errs[2], context.DeadlineExceeded)}
		if !slices.Equal(late, []bool{false, false, true}) || time.Since(began) != 10*time.Second {
			t.Errorf("%v after %s", errs, time.Since(began))
		}
	})
}
