package console

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/value"
)

// theAppliance is what a supervisor says of three nodes, of which one is lost and one
// is the arbiter.
func theAppliance() any {
	at := now().Add(-time.Hour).Format(time.RFC3339)
	node := func(name, role, state string, more ...any) *value.Map {
		m := value.NewMap("name", name, "role", role, "state", state, "master", "ok", "proxy", "ok",
			"storage", "ok", "version", "1.2.3", "address", "192.0.2.1", "minions", int64(40))
		for i := 0; i < len(more); i += 2 {
			m.Set(more[i], more[i+1])
		}
		return m
	}

	return value.NewMap("time", at, "health", "degraded", "cluster", "prod", "node", "n1", "address", "192.0.2.100", "holders", []any{"n1"},
		"nodes", []any{node("n1", "voter", "ready", "this", true),
			node("n2", "voter", "unreachable", "drained", true, "minions", nil, "master", says),
			node("n3", "arbiter", "ready"), node(hostile, "voter", says)},
		"services", []any{value.NewMap("name", "master", "state", "running", "message", says, "since", at,
			"restarts", int64(2))},
		"storage", value.NewMap("kind", "volume", "total", int64(40<<30), "free", int64(10<<30)),
		"problems", []any{value.NewMap("code", "SCA-401", "severity", "warning", "title",
			"a node is unreachable", "subject", says, "cause", says, "next", "look at "+says, "since", at)})
}

func theCourse() any {
	points := func(of func(i int) any) []any {
		l := []any{}
		for i := range 6 {
			p := value.NewMap("at", now().Add(time.Duration(i-6)*control.PointEvery).Format(time.RFC3339),
				"minions", of(i), "memory", int64(64<<20))
			l = append(l, p)
		}
		return l
	}
	return value.NewMap("nodes", []any{value.NewMap("node", "n1", "points", points(func(i int) any { return int64(i) })),
		value.NewMap("node", hostile, "points", points(func(i int) any { return float64(i) / 3 }))},
		"unasked", value.NewMap("n2", says))
}

// What is done with a node is what was confirmed; a name that is none of the cluster's,
// and a service that may not be restarted, reach nobody.
func TestNodes(t *testing.T) {
	c := newConsole(t, "")
	form := func(kv ...string) url.Values {
		f := url.Values{"form": {formToken(strings.Repeat("ab", 32))}}
		for i := 0; i < len(kv); i += 2 {
			f.Set(kv[i], kv[i+1])
		}
		return f
	}

	for _, x := range []struct {
		form url.Values
		code int
		acts bool
	}{
		{form("do", "drain", "node", "n1"), http.StatusSeeOther, true},
		{form("do", "restart", "node", "n2", "service", "lb"), http.StatusSeeOther, true},
		{form("do", "undrain", "node", "n2"), http.StatusConflict, true},
		{form("do", "restart", "node", "n2", "service", "observe"), http.StatusBadRequest, false},
		{form("do", "restart", "node", "n2"), http.StatusBadRequest, false},
		{form("do", "remove", "node", "n2"), http.StatusBadRequest, false},
		{form("do", "drain", "node", "n9"), http.StatusNotFound, false},
		{form("do", "drain", "node", hostile), http.StatusBadRequest, false},
		{form("do", "drain", "node", "../n1"), http.StatusBadRequest, false},
		{form("do", "drain", "node", "n1\r\nx: y"), http.StatusBadRequest, false},
	} {
		m := &recorded{answers: theAnswers()}
		a := ask(t, c, m, http.MethodPost, "/nodes", x.form)
		acted := slices.ContainsFunc(m.asked, func(s string) bool { return strings.HasPrefix(s, "wheel ") })
		if a.Code != x.code || acted != x.acts || strings.Contains(a.Body, "<b ") {
			t.Errorf("%v: %d, asked %v", x.form, a.Code, m.asked)
		}

		if to := a.Header.Get("Location"); a.Code == http.StatusSeeOther &&
			!strings.Contains(ask(t, c, m, http.MethodGet, strings.TrimPrefix(to, c.base), nil).Body,
				`class="notice"`) {
			t.Errorf("%s says nothing", to)
		}
	}
}

// Who may only look sees the nodes and no buttons; without applianced, or without the
// right, there is the page of before.
func TestNodesForViewers(t *testing.T) {
	c := newConsole(t, "")
	viewer := &recorded{answers: theAnswers(), may: func(client, _ string) bool { return client == "runner" }}
	if a := ask(t, c, viewer, http.MethodGet, "/", nil); !strings.Contains(a.Body, "<polyline") ||
		strings.Contains(a.Body, "/nodes/confirm") {
		t.Errorf("%s", a.Body)
	}

	if a := ask(t, c, viewer, http.MethodPost, "/nodes",
		url.Values{
			"form": {formToken(strings.Repeat("ab", 32))},
			"do":   {"drain"},
			"node": {"n1"},
		}); a.Code != http.StatusForbidden {
		t.Errorf("%d", a.Code)
	}

	for _, lacks := range []string{"appliance.status", "appliance.course"} {
		m := &recorded{answers: theAnswers()}
		m.answers[lacks] = "Exception occurred in runner " + lacks + ": ask the supervisor: no such file " + says
		if a := ask(t, c, m, http.MethodGet, "/", nil); a.Code != http.StatusOK ||
			!strings.Contains(a.Body, "no such file") || strings.Contains(a.Body, "<b ") || strings.Contains(a.Body, "<polyline") {
			t.Errorf("without %s: %d %s", lacks, a.Code, a.Body)
		}
	}

	c.cfg.Nodes = false
	m := &recorded{answers: theAnswers()}
	if a := ask(t, c, m, http.MethodGet, "/", nil); strings.Contains(a.Body, "<polyline") ||
		slices.Contains(m.asked, "runner appliance.status") || strings.Contains(a.Body, "appliance.status") {
		t.Errorf("without applianced: %v %s", m.asked, a.Body)
	}
}

// A plot is bounded, has gaps where nothing is known, and takes no number that is none.
func TestPlots(t *testing.T) {
	v := func(f float64) *float64 { return &f }
	var c control.Course
	for n := range 40 {
		s := control.Series{Node: fmt.Sprint("n", n)}
		for i := range control.MaxPoints {
			p := control.Point{
				At:      now().Add(time.Duration(i-control.MaxPoints) * control.PointEvery),
				Minions: v(123456.789 + float64(i)),
				Returns: v(float64(i) / 7),
				Latency: v(1),
				Memory:  v(1e9),
			}

			if i == 100 || i == 101 {
				p.Minions = nil
			}

			s.Points = append(s.Points, p)
		}

		s.Points = append(s.Points,
			control.Point{At: now().Add(-time.Hour), Minions: v(-1), Latency: v(1e300)},
			control.Point{At: now().AddDate(1, 0, 0), Minions: v(7)})
		c.Nodes = append(c.Nodes, s)
	}

	plots := plotsOf(c, now())
	if len(plots) != 4 || len(plots[0].Lines) != maxPlotted || plots[0].Left != 34 ||
		len(plots[0].Lines[0].Parts) != 2 || len(plots[1].Lines[0].Parts) != 1 {
		t.Fatalf("%d plots, %+v", len(plots), plots[0].Left)
	}

	size := 0
	for _, p := range plots {
		for _, l := range p.Lines {
			for _, s := range l.Parts {
				size += len(s)
				if strings.ContainsAny(s, "-NIe") {
					t.Errorf("%s: %s", p.Title, s)
				}
			}
		}
	}

	if size > 100_000 {
		t.Errorf("%d bytes of points", size)
	}

	if p := plotsOf(control.Course{Nodes: []control.Series{{
		Node:   "n",
		Points: []control.Point{{At: now(), Minions: v(0)}},
	}}},
		now()); len(p) != 1 || p[0].Lines[0].Parts[0] != "480,96.0 480,96.0" {
		t.Errorf("%+v", p)
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 7: "7", 1234: "1234", 1.25: "1.2", 0.034: "0.034", 456.7: "457"} {
		if got := shortNumber(v); got != want {
			t.Errorf("%v: %s", v, got)
		}
	}
	if got := bytesWord(3 << 30); got != "3 GiB" {
		t.Error(got)
	}
	// As applianced status rounds it.
	if got := spaceWord(control.Space{Free: 988, Total: 1000}); got != "988 B of 1000 B free (99 %)" {
		t.Error(got)
	}
}
