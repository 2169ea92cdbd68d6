package nodeapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/nodes"
	"saltern/supervisor/options"
)

// optionsHost says what it is told to say, and notes what it was asked.
type optionsHost struct {
	state options.State
	found options.Findings
	err   error
	asked string
}

func (h *optionsHost) State(_ context.Context, fresh bool) (options.State, error) {
	h.asked = fmt.Sprint("state ", fresh)
	return h.state, h.err
}
func (h *optionsHost) Check(context.Context) (options.Findings, error) { return h.found, h.err }
func (h *optionsHost) Try(_ context.Context, mark string, limit time.Duration) error {
	h.asked = fmt.Sprint("try ", mark, " ", limit)
	return h.err
}
func (h *optionsHost) Back(_ context.Context, mark, why string) error {
	h.asked = fmt.Sprint("back ", mark, " ", why)
	return h.err
}
func (h *optionsHost) Keep(_ context.Context, mark string) error {
	h.asked = "keep " + mark
	return h.err
}

// Members ask each other about the master's options, and are told by codes what went
// wrong; a stranger is told nothing.
func TestOptions(t *testing.T) {
	h := &optionsHost{
		state: options.State{
			Files:    []options.File{{Name: "a.conf", Digest: "1"}},
			Wanted:   "w",
			Serving:  true,
			LastGood: "no\x1b[31m",
		},
		found: options.Findings{Faults: []options.Fault{{
			File:   "a.conf",
			Line:   3,
			Option: "timeout",
			Text:   "a.conf:3: no",
		}}},
	}

	c := startNode(t)
	c.options = h
	member := identity(t)
	c.mu.Lock()
	c.table.Put(nodes.Node{Name: "n2", Address: "127.0.70.2", State: nodes.Member, Certificate: member.Hash})
	c.mu.Unlock()

	client := NewClient(member, c.address, c.id.Hash)
	defer client.Close()
	n := client.Options()
	ctx := t.Context()
	if st, err := n.State(ctx, true); err != nil || len(st.Files) != 1 || st.Wanted != "w" ||
		h.asked != "state true" || strings.Contains(st.LastGood, "\x1b") {
		t.Errorf("%+v %v %s", st, err, h.asked)
	}

	if f, err := n.Check(ctx); err != nil || len(f.Faults) != 1 || f.Faults[0].Line != 3 {
		t.Errorf("%+v %v", f, err)
	}

	for want, do := range map[string]func() error{
		"try m 9s":  func() error { return n.Try(ctx, "m", 9*time.Second) },
		"back m no": func() error { return n.Back(ctx, "m", "no") },
		"keep m":    func() error { return n.Keep(ctx, "m") },
	} {
		if err := do(); err != nil || h.asked != want {
			t.Errorf("%s: %v, %s", want, err, h.asked)
		}

		for _, kind := range []error{options.ErrChanged, options.ErrTrying, options.ErrNotHeld} {
			h.err = kind
			if err := do(); !errors.Is(err, kind) {
				t.Errorf("%s: %v is not %v", want, err, kind)
			}
		}

		h.err = nil
	}

	h.asked = ""
	if err := n.Try(ctx, strings.Repeat("m", 65), time.Second); err == nil || h.asked != "" {
		t.Errorf("a mark that is none: %v", err)
	}

	h.state.Files = make([]options.File, options.MaxFiles+1)
	if _, err := n.State(ctx, false); err == nil {
		t.Error("too many files were taken")
	}

	stranger := NewClient(identity(t), c.address, c.id.Hash)
	defer stranger.Close()
	h.asked = ""
	if err := stranger.Options().Try(ctx, "m", time.Second); !errors.Is(err, errStranger) || h.asked != "" {
		t.Errorf("a stranger: %v", err)
	}
}

// A node of a version without these routes is named as such.
func TestOptionsOfAnOlderNode(t *testing.T) {
	srv := httptest.NewTLSServer(http.NotFoundHandler())
	defer srv.Close()
	tr := &http.Transport{TLSClientConfig: srv.Client().Transport.(*http.Transport).TLSClientConfig}
	c := &Client{http: &http.Client{Transport: rewritten{tr, strings.TrimPrefix(srv.URL, "https://")}}}
	if _, err := c.Options().State(t.Context(), false); !errors.Is(err, options.ErrOld) {
		t.Errorf("%v", err)
	}
}

// rewritten sends requests to another host.
type rewritten struct {
	next http.RoundTripper
	host string
}

func (r rewritten) RoundTrip(q *http.Request) (*http.Response, error) {
	q = q.Clone(q.Context())
	q.URL.Host = r.host
	return r.next.RoundTrip(q)
}
