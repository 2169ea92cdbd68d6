package diff

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestMinionsAreNotedInOrder: results are noted by the names of minions, however long each takes and in
// whatever order they are asked for.
func TestMinionsAreNotedInOrder(t *testing.T) {
	keep := func(context.Context) error { return nil }
	for _, atOnce := range []int{1, 2, 7} {
		t.Run(fmt.Sprint(atOnce), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ids, noted []string
				for i := range 300 {
					ids = append(ids, fmt.Sprintf("m%03d", i))
				}
				want := slices.Clone(ids)
				rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })

				err := eachMinion(t.Context(), ids, atOnce, keep, func(_ context.Context, id string) (func(), error) {
					time.Sleep(rand.N(time.Second))
					return func() { noted = append(noted, id) }, nil
				})
				if err != nil || !slices.Equal(noted, want) {
					t.Errorf("%v, %q", err, noted)
				}
			})
		})
	}
}

// TestMinionsEndWithTheFirstError: an error, or the end of the context, ends all that are under way.
func TestMinionsEndWithTheFirstError(t *testing.T) {
	fault := errors.New("fault")
	ids := []string{}
	for i := range 300 {
		ids = append(ids, fmt.Sprintf("m%03d", i))
	}
	for name, tt := range map[string]struct {
		keep, do error
		cancel   bool
		want     error
	}{
		"do":      {do: fault, want: fault},
		"keep":    {keep: fault, want: fault},
		"context": {cancel: true, want: context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				began := 0
				keep := func(context.Context) error { return tt.keep }
				err := eachMinion(ctx, ids, 1, keep, func(ctx context.Context, id string) (func(), error) {
					began++
					select {
					case <-time.After(10 * time.Second):
					case <-ctx.Done():
						return nil, nil
					}
					if id == "m010" {
						if tt.cancel {
							cancel()
						}
						return nil, tt.do
					}
					return nil, nil
				})
				if !errors.Is(err, tt.want) || began > 20 {
					t.Errorf("%v after %d minions", err, began)
				}
			})
		})
	}
}

// TestKeepRunsWhileAMinionIsSlow: what is served is kept each minute, though the others wait for the first minion.
func TestKeepRunsWhileAMinionIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := 0
		keep := func(context.Context) error {
			kept++
			return nil
		}
		err := eachMinion(t.Context(), []string{"m1"}, 1, keep, func(context.Context, string) (func(), error) {
			time.Sleep(10*time.Minute + time.Second)
			return nil, nil
		})
		if err != nil || kept != 10 {
			t.Errorf("%v, kept %d times", err, kept)
		}
	})
}
