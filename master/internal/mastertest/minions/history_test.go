package minions

import (
	"testing"

	"saltern/master/history"
	"saltern/master/internal/mastertest"
	"saltern/test/await"
	"saltern/test/check"
)

// What a minion returns is in the history, with the function and the user of its job, until the options
// say that none is kept.
func TestReturnsAreInTheHistory(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "")
	n := r.AcceptedMinion("web1", "min6")
	jid := r.Publish("web1", "test.ping").Str("jid")
	n.Ask("_return", "jid", jid, "fun", "test.ping", "return", true, "retcode", int64(0), "success", true)

	var page history.Page
	await.That(t, "the run in the history", func() bool {
		var err error
		page, err = r.Parts.History.Query(await.Context(t), history.Filter{Minion: "web1", Returns: true}, 10, "")
		check.Must(t, err)
		return len(page.Runs) == 1
	})
	run := page.Runs[0]
	if run.JID != jid || run.Function != "test.ping" || run.User == "" || len(run.Return) == 0 || run.Time.IsZero() {
		t.Errorf("%+v", run)
	}

	if none := mastertest.Start(t, "saltern_history_days: -1"); none.Parts.History != nil {
		t.Error("a history that nobody wants is kept")
	}
}
