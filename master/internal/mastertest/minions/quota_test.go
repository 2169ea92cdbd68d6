package minions

import (
	"fmt"
	"strings"
	"testing"

	"saltern/master/internal/mastertest"
	"saltern/master/internal/minion"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// TestFinding17Quota: a minion over its quota is answered, what it returned is
// seen by those who wait, and the disk keeps that it came. Others go on.
func TestFinding17Quota(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "saltern_job_cache_quota: 1\n")
	evil, web := r.AcceptedMinion("evil", "min8"), r.AcceptedMinion("web1", "min7")
	big := strings.Repeat("x", 300<<10)
	ret := func(n *mastertest.Minion, i int, load ...any) string {
		jid := fmt.Sprintf("202611230115%08d", i)
		n.Ask("_return",
			append([]any{"jid", jid, "fun", "test.ping", "fun_args", []any{}, "return", big, "retcode",
				int64(7), "success", false},
				load...)...)
		return jid
	}

	kept := func(jid, id string) *value.Map {
		t.Helper()
		v, err := r.Parts.Jobs.Returns(await.Context(t), jid)
		check.Must(t, err)
		return v.Map(id)
	}

	r.ListenToBus()
	var last string
	for i := range 6 {
		last = ret(evil, i)
		if v := kept(last, "evil"); (v.Str("return") == big) != (i < 3) {
			t.Errorf("return %d: %.60q is kept", i, v.Str("return"))
		}
	}

	v := kept(last, "evil")
	if code, _ := v.Int("retcode"); v.Str("return") != minion.OverQuota || code != 7 {
		t.Errorf("kept: %v", v)
	}

	seen := false
	for _, e := range r.NewEvents() {
		seen = seen || e.Tag == "salt/job/"+last+"/ret/evil" && e.Data.Str("return") == big
	}

	if !seen || r.Parts.Minions.Stats().Trimmed != 3 {
		t.Errorf("event seen: %v, %d trimmed", seen, r.Parts.Minions.Stats().Trimmed)
	}

	if v := kept(ret(web, 9), "web1"); v.Str("return") != big {
		t.Error("the return of another minion was not kept")
	}
}
