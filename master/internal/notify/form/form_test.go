package form

import (
	"encoding/json"
	"io"
	"mime"
	"mime/quotedprintable"
	"net/mail"
	"strings"
	"testing"
	"time"

	"saltern/master/internal/notify/alert"
	"saltern/master/internal/notify/rules"
	"saltern/test/check"
)

func message(minion, title string, lines ...string) *alert.Message {
	a := alert.Alert{
		ID:     alert.Digest("id"),
		Key:    alert.Digest("key"),
		Kind:   rules.Failed,
		Time:   time.Date(2026, 11, 29, 6, 0, 0, 0, time.UTC),
		Minion: minion,
		JID:    "20261129060000000000",
		Title:  title,
		Lines:  lines,
	}
	a.Clean()
	return &alert.Message{ID: alert.Digest("m"), Rule: "ops", To: "ops/1", Alerts: []alert.Alert{a}}
}

func TestBodies(t *testing.T) {
	m := message("web1", "state.apply failed on web1: 1 of 3 states", "nginx (pkg.installed): no such package")
	generic, err := Body(m, rules.Generic)
	check.Must(t, err)
	var got struct {
		ID, Rule, Title string
		Count           int
		Alerts          []struct{ Minion, JID string }
	}
	check.Must(t, json.Unmarshal(generic, &got))
	if got.ID != m.ID || got.Count != 1 || got.Alerts[0].Minion != "web1" || got.Alerts[0].JID != "20261129060000000000" {
		t.Errorf("%s", generic)
	}

	for _, f := range []rules.Form{rules.Slack, rules.Teams} {
		body, err := Body(m, f)
		check.Must(t, err)
		for _, part := range []string{"state.apply failed on web1", "nginx (pkg.installed)", "20261129060000000000"} {
			if !strings.Contains(string(body), part) {
				t.Errorf("%s: %q is missing in %s", f, part, body)
			}
		}
	}
}

func TestSummaryIsBounded(t *testing.T) {
	m := message("web1", "state.apply failed on web1")
	for range 999 {
		m.Alerts = append(m.Alerts, m.Alerts[0])
	}
	m.Alerts[5].Kind = rules.Gone
	if got := Title(m); got != "1000 messages were held back: 999 failed, 1 gone" {
		t.Error(got)
	}
	for _, f := range []rules.Form{rules.Generic, rules.Slack, rules.Teams} {
		body, err := Body(m, f)
		check.Must(t, err)
		if len(body) > 64<<10 || !strings.Contains(string(body), "and 980 more") {
			t.Errorf("%s: %d bytes", f, len(body))
		}
	}
}

// FuzzForms: whatever a minion calls itself and reports, no form gets another header, link, mention
// or line.
func FuzzForms(f *testing.F) {
	f.Add("web1", "failed", "<!channel> <https://evil|click> *bold* [x](http://y)")
	f.Add("a\r\nBcc: x@y", "t\r\n\r\nbody", "\x1b[31m\x00\n.\r\nQUIT")
	f.Add("é\u202e", strings.Repeat("x", 1<<20), strings.Repeat("\xff\n", 1<<10))
	f.Fuzz(func(t *testing.T, minion, title, line string) {
		m := message(minion, title, line, line)
		for _, form := range []rules.Form{rules.Generic, rules.Slack, rules.Teams} {
			body, err := Body(m, form)
			check.Must(t, err)
			if !json.Valid(body) || len(body) > 64<<10 {
				t.Fatalf("%s: %d bytes", form, len(body))
			}
		}

		var slacked struct{ Text string }
		body, err := Body(m, rules.Slack)
		check.Must(t, err)
		check.Must(t, json.Unmarshal(body, &slacked))
		if strings.ContainsAny(slacked.Text, "<>") {
			t.Error("Slack would link or mention:", slacked.Text)
		}

		checkMail(t, m)
		for _, text := range [][]byte{Local(m, 16), Remote(m, 16, "host", time.Now())} {
			if strings.ContainsAny(string(text), "\r\n\x00\x1b") || len(text) > maxSyslog {
				t.Errorf("%d bytes: %.200q", len(text), text)
			}
		}
	})
}

func checkMail(t *testing.T, m *alert.Message) {
	t.Helper()
	content, err := Mail(m, "salt@example.com", []string{"ops@example.com", "b@example.com"}, time.Now())
	check.Must(t, err)
	got, err := mail.ReadMessage(strings.NewReader(string(content)))
	check.Must(t, err)
	if len(got.Header) != 10 || got.Header.Get(KeyHeader) != m.ID {
		t.Errorf("headers: %v", got.Header)
	}
	for line := range strings.SplitSeq(string(content), "\r\n") {
		if strings.ContainsAny(line, "\r\n") || len(line) > 998 {
			t.Errorf("line of a mail: %.200q", line)
		}
	}

	subject, err := new(mime.WordDecoder).DecodeHeader(got.Header.Get("Subject"))
	check.Must(t, err)
	if strings.ContainsAny(subject, "\r\n\x00") {
		t.Errorf("subject %q", subject)
	}
	body, err := io.ReadAll(quotedprintable.NewReader(got.Body))
	check.Must(t, err)
	if !strings.HasPrefix(string(body), m.Alerts[0].Title) {
		t.Errorf("body %.200q", body)
	}
}
