package minions

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"saltern/master/internal/local"
	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/await"
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
