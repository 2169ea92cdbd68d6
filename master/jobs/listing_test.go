package jobs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
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
	c := open(t, Config{})
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
