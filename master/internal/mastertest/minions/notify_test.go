package minions

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"saltern/master/event"
	"saltern/master/internal/local"
	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// hookOf returns the options of a rule about failed runs and new keys, whose web hook is a server of
// the test, and a function that returns how many messages contained a text.
func hookOf(t *testing.T) (options string, count func(text string) int) {
	var mu sync.Mutex
	var bodies []string
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		bodies = append(bodies, string(body))
	}))
	t.Cleanup(hook.Close)
	options = fmt.Sprintf("saltern_notify:\n- name: ops\n  on: [failed, key]\n  dedupe: 0\n  to: {url: '%s/SECRET'}\n", hook.URL)
	return options, func(text string) (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, body := range bodies {
			if strings.Contains(body, text) {
				n++
			}
		}
		return n
	}
}

// There is one message about a failed run and one about a key that waits, also when the minion
// sends its return again and the master restarts. There is none about a run that succeeded, and
// only the web hook gets its URL.
func TestNotifications(t *testing.T) {
	options, count := hookOf(t)
	r := mastertest.Start(t, options)
	n := r.AcceptedMinion("web1", "min8")
	n.SignIn()
	for range 2 {
		n.Ask("_return", "jid", "20261129060000000001", "fun", "test.ping", "fun_args", []any{}, "return", true,
			"retcode", 0, "success", true)
		n.Ask("_return", "jid", "20261129060000000002", "fun", "cmd.run", "fun_args", []any{}, "return", "no",
			"retcode", 1, "success", false)
	}
	r.NewMinion("stranger", "min7").SignIn()

	await.That(t, "a message about the run", func() bool { return count("20261129060000000002") == 1 })
	r = r.Restart(options)
	n = r.AcceptedMinion("web1", "min8")
	n.Ask("_return", "jid", "20261129060000000003", "fun", "cmd.run", "fun_args", []any{}, "return", "no",
		"retcode", 1, "success", false)
	await.That(t, "a message after the restart", func() bool { return count("20261129060000000003") == 1 })
	await.That(t, "a message about the key", func() bool { return count("key of stranger") == 1 })
	if count("20261129060000000001") > 0 || count("20261129060000000002") != 1 {
		t.Error("a run that succeeded, or a run for the second time")
	}

	r.ListenToBus()
	listed := ""
	r.AskInClear("runner", "fun", "notify.list", "kwarg", value.NewMap("arg", []any{}, "kwarg", value.NewMap()), "key", r.Key,
		"user", local.CurrentUser())
	await.That(t, "the answer of notify.list", func() bool {
		for _, e := range r.NewEvents() {
			if strings.HasSuffix(e.Tag, "/ret") {
				listed = mastertest.PlainText(e.Data)
			}
		}
		return listed != ""
	})
	if !strings.Contains(listed, "ops/1") || strings.Contains(listed, "SECRET") {
		t.Error("notify.list:", listed)
	}
	if strings.Contains(r.Log.String(), "SECRET") {
		t.Error("the URL is in the log")
	}
}

// There is no message about a failed return under the id of a job for which the minion has returned before, from no
// master of the cluster. The masters keep the first return, and tools get the event of each. The minion cannot set the
// mark of such an event to hide a run that failed.
func TestSecondReturnSendsNoMessage(t *testing.T) {
	t.Parallel()
	options, count := hookOf(t)
	ms := mastertest.StartCluster(t, 2, options)
	mastertest.AwaitLinks(t, ms)
	n := ms[0].AcceptedMinion("web1", "min8")
	await.That(t, "the minion at the other master", func() bool { return len(ms[1].Parts.Keys.Accepted()) == 1 })
	ms[0].ListenToBus()
	ms[1].ListenToBus()
	answer := func(jid, text string, retcode int) {
		n.Ask("_return", "jid", jid, "fun", "cmd.run", "fun_args", []any{}, "return", text, "retcode", retcode,
			"success", retcode == 0, event.RefusedField, true)
	}
	const once, twice = "20261129060000000004", "20261129060000000005"
	answer(twice, "fine", 0)
	for range 2 {
		answer(twice, "failed", 1)
		n = n.TalkTo(ms[1])
	}
	answer(once, "failed", 1) // by the other master

	await.That(t, "a message about the run", func() bool { return count(once) == 1 })
	for _, r := range ms {
		marks := map[string]int{} // by what was returned
		await.That(t, "the events", func() bool {
			for _, e := range r.NewEvents() {
				if strings.HasSuffix(e.Tag, twice+"/ret/web1") {
					text := e.Data.Str("return")
					if e.Data.Bool(event.RefusedField) != (text == "failed") {
						t.Errorf("event: %s", value.Repr(e.Data))
					}
					marks[text]++
				}
				if strings.HasSuffix(e.Tag, once+"/ret/web1") && e.Data.Bool(event.RefusedField) {
					t.Error("the minion has set the mark")
				}
			}
			return marks["fine"] > 0 && marks["failed"] == 2
		})
		returns, err := r.Parts.Jobs.Returns(t.Context(), twice)
		check.Must(t, err)
		if got := returns.Map("web1").Str("return"); got != "fine" {
			t.Errorf("kept: %s", value.Repr(returns))
		}
	}
	if count(twice) > 0 {
		t.Error("a message about a return that is not kept")
	}
}
