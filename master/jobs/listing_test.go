package jobs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"sync"
	"testing"
	"time"

	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// slowCache hides Newest, so that Find reads all loads.
type slowCache struct{ Cache }

func jobIDs(list []Job) (out []string) {
	for _, j := range list {
		out = append(out, j.JID)
	}
	return out
}

// TestNewestJobsAreThoseOfAllLoads: whatever jobs come and go, a list has those that reading all loads finds.
func TestNewestJobsAreThoseOfAllLoads(t *testing.T) {
	for _, most := range []int{maxRemembered, 8} {
		t.Run(fmt.Sprint(most), func(t *testing.T) { t.Parallel(); newestAreThoseOfAllLoads(t, most) })
	}
}

func newestAreThoseOfAllLoads(t *testing.T, most int) {
	c := open(t, Config{})
	c.listing.most = most
	random := rand.New(rand.NewPCG(5, 6))
	functions := []any{"test.ping", "saltutil.find_job", "runner.jobs.active", "wheel.key.list", []any{"test.ping", "state.apply"}, nil, int64(3)}
	begin := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	for round := range 12 {
		for range 15 {
			jid := FromTime(begin.Add(time.Duration(random.IntN(100_000)) * time.Second))
			check.Must(t, c.SaveLoad(await.Context(t), jid, value.NewMap("fun", functions[random.IntN(len(functions))], "jid", jid), nil))
			if random.IntN(4) == 0 {
				save(t, c, ret(fmt.Sprintf("%s_%d", jid, random.IntN(9)), "web1", true)) // a job without a load
			}
		}
		if round%3 == 1 {
			flushed(t, c)
			all, err := Find(await.Context(t), slowCache{c}, Query{})
			check.Must(t, err)
			check.Must(t, os.RemoveAll(c.files.jobDir(all[random.IntN(len(all))].JID)))
		}
		if round%4 == 3 {
			flushed(t, c)
			all, err := Find(await.Context(t), slowCache{c}, Query{Last: 1})
			check.Must(t, err)
			check.Must(t, os.WriteFile(c.files.jobDir(all[0].JID)+"/"+loadFile, []byte("torn"), 0o600))
		}

		for _, q := range []Query{{Last: 1}, {Last: 7}, {Last: 1000}, {Last: 20, NoFindJob: true}, {Last: 20, NoRuns: true},
			{Last: 20, NoRuns: true, NoFindJob: true}} {
			want, err := Find(await.Context(t), slowCache{c}, q)
			check.Must(t, err)
			got, err := Find(await.Context(t), c, q)
			check.Must(t, err)
			if !reflect.DeepEqual(jobIDs(got), jobIDs(want)) {
				t.Fatalf("round %d, %+v: got %v, want %v", round, q, jobIDs(got), jobIDs(want))
			}
		}
	}
}

// storeJobs stores n jobs and returns when all of them are files.
func storeJobs(t *testing.T, c *Local, n int) {
	t.Helper()
	begin := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	var saves sync.WaitGroup
	for i := range n {
		saves.Go(func() {
			jid := FromTime(begin.Add(time.Duration(i) * time.Second))
			if err := c.SaveLoad(await.Context(t), jid, value.NewMap("fun", "test.ping", "jid", jid), nil); err != nil {
				t.Error(err)
			}
		})
	}
	saves.Wait()
	flushed(t, c)
}

// TestListsAtOnce: twenty lists of a cache that nobody has listed yet read each load once, together.
func TestListsAtOnce(t *testing.T) {
	t.Parallel()
	const stored = 200
	c := open(t, Config{})
	storeJobs(t, c, stored)
	begin := make(chan struct{})
	var lists sync.WaitGroup
	for range 20 {
		lists.Go(func() {
			<-begin
			got, err := Find(await.Context(t), c, Query{Last: 30})
			if err != nil || len(got) != 30 {
				t.Errorf("%d jobs, %v", len(got), err)
			}
		})
	}
	close(begin)
	lists.Wait()
	if n := c.listing.loads.Load(); n != stored {
		t.Errorf("%d loads of %d jobs were read", n, stored)
	}
	if n := c.listing.begun; n > 20 {
		t.Errorf("%d times all directories", n)
	}
}

// TestListOfManyJobs: beyond the bound a list remembers the newest jobs, so that lists of them read no others.
func TestListOfManyJobs(t *testing.T) {
	t.Parallel()
	const stored = 300
	c := open(t, Config{})
	c.listing.most = 100
	storeJobs(t, c, stored)
	for range 5 {
		got, err := Find(await.Context(t), c, Query{Last: 50})
		check.Must(t, err)
		if len(got) != 50 {
			t.Fatalf("%d jobs", len(got))
		}
	}
	if n := c.listing.loads.Load(); n != stored {
		t.Errorf("%d loads of %d jobs were read", n, stored)
	}
}

// TestListWhoseCallerLeaves: whoever waits for another list leaves when his context ends, and a list that ends early
// leaves what it has read to the next.
func TestListWhoseCallerLeaves(t *testing.T) {
	t.Parallel()
	const stored = 100
	c := open(t, Config{})
	storeJobs(t, c, stored)
	leave, err := c.listing.await(t.Context())
	check.Must(t, err)
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := c.Newest(ended, Query{Last: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("who waits: %v", err)
	}
	leave()

	for range 3 { // each comes to some directories
		if _, err := c.Newest(&endsAfter{t.Context(), 40}, Query{Last: 1}); !errors.Is(err, context.Canceled) {
			t.Errorf("who leaves: %v", err)
		}
	}
	got, err := c.Newest(t.Context(), Query{Last: stored})
	check.Must(t, err)
	if n := c.listing.loads.Load(); n != stored || len(got) != stored {
		t.Errorf("%d loads were read, %d jobs are listed", n, len(got))
	}
}

// endsAfter is a context that ends when somebody has asked it some times.
type endsAfter struct {
	context.Context
	left int
}

func (e *endsAfter) Err() error {
	if e.left--; e.left < 0 {
		return context.Canceled
	}
	return nil
}

// A crash may leave the folder of a return without the return: the minion has not returned, and gets the job again.
func TestFolderWithoutReturn(t *testing.T) {
	c := open(t, Config{})
	check.Must(t, c.SaveLoad(await.Context(t), jid1, value.NewMap("jid", jid1, "fun", "f"), []string{"m1"}))
	check.Must(t, os.MkdirAll(c.files.jobDir(jid1)+"/m1", 0o750))
	returned, err := c.Returned(await.Context(t), jid1)
	check.Must(t, err)
	if len(returned) > 0 {
		t.Errorf("%v have returned", returned)
	}
}
