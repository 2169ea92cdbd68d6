package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/master/jobs"
	"saltern/master/value"
	"saltern/test/check"
)

var start = time.Date(2026, 11, 23, 1, 0, 0, 0, time.UTC)

// TestQuotaOfABuildServer: 50,000 jobs a day with arguments of a kilobyte, for three days,
// are not refused, evenly or all in the working hours.
func TestQuotaOfABuildServer(t *testing.T) {
	for name, busy := range map[string]time.Duration{"all day": 24 * time.Hour, "in an hour": time.Hour} {
		t.Run(name, func(t *testing.T) {
			q := newQuota(0, 24*time.Hour)
			for day := range 3 {
				for i := range 50_000 {
					now := start.Add(time.Duration(day)*24*time.Hour + busy*time.Duration(i)/50_000)
					if err := q.chargeOrRefuse("ldap/ci", jobFiles+1<<10, now); err != nil {
						t.Fatalf("day %d, job %d: %v", day, i, err)
					}
				}
			}
		})
	}
}

func TestQuotaComesBack(t *testing.T) {
	q := newQuota(1, time.Hour)
	took := func(account string, bytes int, after time.Duration) string {
		err := q.chargeOrRefuse(account, bytes, start.Add(after))
		if err == nil {
			return ""
		}

		refusal, ok := errors.AsType[*Refusal](err)
		if !ok {
			t.Fatal(err)
		}

		return refusal.Text
	}

	for _, c := range []struct {
		account string
		bytes   int
		after   time.Duration
		says    string // of the refusal
	}{
		{"a", 1 << 20, 0, ""},
		{"a", 512 << 10, 0, "wait 30m0s"},
		{"b", 1 << 20, 0, ""},
		{"", 1 << 30, 0, ""}, // nobody's
		{"a", 2 << 20, 0, "send less"},
		{"a", 512 << 10, 29 * time.Minute, "wait 1m0s"},
		{"a", 512 << 10, 30 * time.Minute, ""},
		{"a", 1, -time.Hour, "wait"}, // the clock was set back
		{"a", 1 << 20, 2 * time.Hour, ""},
	} {
		got := took(c.account, c.bytes, c.after)
		if (got == "") != (c.says == "") || !strings.Contains(got, c.says) ||
			got != "" && !strings.Contains(got, "saltern_user_job_quota") {
			t.Errorf("%s %d after %v: %q, want %q", c.account, c.bytes, c.after, got, c.says)
		}
	}

	none := newQuota(-1, time.Hour)
	if none.chargeOrRefuse("a", 1<<40, start) != nil {
		t.Error("no quota refuses")
	}

	if q := newQuota(0, 0); q.rate.Burst != defaultUserQuota || q.window != defaultWindow {
		t.Errorf("the defaults are %+v", q)
	}
}

// TestQuotaOfEarlierLives: what was used counts after a restart, less what has come back;
// a file that cannot be read begins anew and says so.
func TestQuotaOfEarlierLives(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quotas.json")
	q := newQuota(1, time.Hour)
	q.chargePeerJob("a", 3<<20, start) // what another master has let it have
	check.Must(t, q.chargeOrRefuse("b", 1000, start))
	check.Must(t, q.saveUsage(path, start))
	again := func(after time.Duration) *quota {
		t.Helper()
		q := newQuota(1, time.Hour)
		check.Must(t, q.loadUsage(path, start.Add(after)))
		return q
	}

	for after, may := range map[time.Duration]bool{
		0:                         false,
		time.Hour:                 false,
		2*time.Hour + time.Minute: true,
		-time.Hour:                false,
	} {
		if err := again(after).chargeOrRefuse("a", 1, start.Add(after)); (err == nil) != may {
			t.Errorf("%v later: %v", after, err)
		}
	}

	if again(0).chargeOrRefuse("b", 1<<20, start) == nil || again(0).chargeOrRefuse("c", 1<<20, start) != nil {
		t.Error("another account")
	}

	check.Must(t, os.Remove(path))
	check.Must(t, q.saveUsage(path, start))
	if _, err := os.Stat(path); err == nil {
		t.Error("it is written without a change")
	}

	check.Must(t, again(0).chargeOrRefuse("a", 1, start)) // no file: nothing was used
	for _, bad := range []string{"", "{", `{"used": {"a": "x"}}`, strings.Repeat(" ", maxQuotaFile+1)} {
		check.Must(t, os.WriteFile(path, []byte(bad), 0o600))
		if err := newQuota(1, time.Hour).loadUsage(path, start); err == nil {
			t.Errorf("%.20q is read", bad)
		}
	}
}

// TestQuotaForgetsWhoHasUsedLeast: what is remembered is bounded.
func TestQuotaForgetsWhoHasUsedLeast(t *testing.T) {
	q := newQuota(1, time.Hour)
	q.chargePeerJob("full", 1<<20, start)
	for i := range maxAccounts + 100 {
		q.chargePeerJob(fmt.Sprint(i), 0, start)
	}
	if len(q.buckets) != maxAccounts {
		t.Errorf("%d are remembered", len(q.buckets))
	}
	if q.chargeOrRefuse("full", 1, start) == nil {
		t.Error("who has used up his quota was forgotten")
	}
}

// TestQuotaOfBatch: the slices of a batch are charged as one job, and a batch that has no room is refused
// before it begins.
func TestQuotaOfBatch(t *testing.T) {
	t.Parallel()
	const account = "ldap/ann"
	load := func(ids ...any) *value.Map {
		return value.NewMap("fun", "test.ping", "arg", []any{}, "tgt", ids, "tgt_type", "list", "ret", "",
			"jid", aJID, "user", "ann", jobs.AccountField, account, jobs.BatchField, value.NewMap("minions", int64(2)))
	}
	l, s := withSteps(t, nil)
	used := func() float64 {
		return l.quota.bucketOf(account, l.cfg.Now()).Used(l.cfg.Now(), l.quota.rate)
	}
	check.Must(t, l.StartSlice(t.Context(), load("web1")))
	first := used()
	check.Must(t, l.StartSlice(t.Context(), load("web2")))
	if second := used() - first; first < jobFiles || second > first-jobFiles+100 {
		t.Errorf("charged %.0f and %.0f bytes", first, second)
	}

	peer, _ := withSteps(t, nil)
	for _, pub := range s.published {
		started := pub.load.Clone()
		started.Set(jobs.AccountField, account)
		started.Set(jobs.BatchField, value.NewMap("minions", int64(2)))
		check.Must(t, peer.Learn(t.Context(), aJID, started, func() error { return nil }))
	}
	if got := peer.quota.bucketOf(account, peer.cfg.Now()).Used(peer.cfg.Now(), peer.quota.rate); got < jobFiles || got > 2*jobFiles {
		t.Errorf("a peer charged %.0f bytes", got)
	}

	before := used()
	room := func(account string, load *value.Map, n, size int) error {
		return l.RoomForBatch(account, load, n, size)
	}
	_, refused := errors.AsType[*Refusal](room(account, load("web1"), defaultUserQuota/20, 1))
	if err := room(account, load("web1"), 1000, 1); err != nil || !refused || used() > before {
		t.Errorf("%v, refused %t", err, refused)
	}
	if err := room("", load("web1"), defaultUserQuota, 1); err != nil {
		t.Errorf("of a caller with all rights: %v", err)
	}

	var ids []any // of a long list, which the slices do not have
	for i := range 600 {
		ids = append(ids, fmt.Sprintf("%030d", i))
	}
	l.quota.rate.Burst = 8 << 20
	if err := room(account, load(ids...), len(ids), 1); err != nil {
		t.Errorf("one of 600 at a time: %v", err)
	}
	long := load("web1")
	long.Set("arg", []any{strings.Repeat("x", 100<<10)})
	if err := room(account, long, 200, 200); err != nil {
		t.Errorf("all at once: %v", err)
	}
	if room(account, long, 200, 1) == nil {
		t.Error("20 MiB have room in 8 MiB")
	}
}
