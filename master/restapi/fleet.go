package restapi

import (
	"context"
	"net/http"
	"strings"

	"saltern/internal/printable"
	"saltern/master/value"
)

const typeCSV = "text/csv"

// fleetView describes the answer to GET /fleet/NAME.
type fleetView struct {
	list    string   // field of the runner's result that has the rows; "" means that there are none
	columns []string // of the CSV
}

// fleetViews are the views by name. Each is the result of the runner fleet.NAME, whose rights apply.
var fleetViews = map[string]fleetView{
	"summary": {},
	"explain": {},
	"trend":   {"days", []string{"day", "ok", "changed", "would_change", "failed", "error", "answered", "absent"}},
	"last": {"minions", []string{"minion", "result", "time", "jid", "user", "function", "test", "ok", "changed",
		"would_change", "failed", "seconds", "retcode", "revision", "answered", "answered_function"}},
	"runs": {"runs", runColumns},
	"jobs": {"jobs", []string{"jid", "time", "user", "function", "target", "target_type", "minions", "ok", "failed", "absent",
		"changed", "would_change", "error", "pending", "left_out"}},
	"drift": {"drift", []string{"minion", "time", "jid", "user", "id", "sls", "function", "name", "changes", "cause",
		"corrected", "comment", "revision"}},
	"search": {"runs", runColumns},
}

var runColumns = []string{"minion", "time", "jid", "user", "function", "result", "test", "ok", "changed",
	"would_change", "failed", "seconds", "retcode", "revision"}

// fleetNames are the fields that the query of a view may have: the arguments of its runner.
var fleetNames = []string{"after", "ask", "brief", "fun", "function", "jid", "key", "limit", "minion", "page", "result",
	"since", "state", "text", "until", "user"}

// showFleet answers with the result of a runner about the runs of all minions, as JSON, YAML or CSV.
func showFleet(s *Server, ctx context.Context, q *request) (any, error) {
	name := "summary"
	if len(q.args) > 0 {
		name = q.args[0]
	}
	view, ok := fleetViews[name]
	if !ok {
		return nil, s.noPath(q.http)
	}
	if q.format == typeCSV && view.list == "" {
		return nil, &failure{http.StatusNotAcceptable, "This is no table: ask for " + typeJSON + "."}
	}

	named := value.NewMap()
	for key, values := range q.http.URL.Query() {
		named.Set(key, strings.Join(values, ","))
	}
	low := value.NewMap("client", "runner", "fun", "fleet."+name, "kwarg", named)
	got, err := s.execute(ctx, q, []any{low}, "", q.token)
	if err != nil {
		return nil, err
	}
	found, ok := got[0].(*value.Map)
	if !ok { // wrong arguments: Salt does not treat them as a failure of the runner
		return nil, &failure{http.StatusBadRequest, value.StrMax(got[0], 1000)}
	}
	if q.format != typeCSV {
		return result(got), nil
	}

	h := q.w.Header()
	h.Set("Content-Type", typeCSV+"; charset=utf-8")
	h.Set("Content-Disposition", `attachment; filename="fleet-`+name+`.csv"`)
	h.Set("X-Content-Type-Options", "nosniff")
	setPaging(h, found)
	s.sendText(q, http.StatusOK, asCSV(view, found))
	return nil, nil
}

// setPaging sets the headers that tell of rows that a table lacks, or may lack.
func setPaging(h http.Header, found *value.Map) {
	next := found.Str("next")
	if next != "" {
		h.Set("X-Next", next)
	}
	if next != "" || found.Bool("more") {
		h.Set("X-More", "true")
	}
	if found.Bool("partial") {
		h.Set("X-Partial", "true")
	}
	if missing := found.Str("older_missing"); missing != "" {
		h.Set("X-Older-Missing", missing)
	}
}

// asCSV returns the rows of a view as CSV (RFC 4180).
func asCSV(view fleetView, found *value.Map) string {
	var b strings.Builder
	b.WriteString(printable.Row(view.columns...))
	row := func(m *value.Map) {
		var cells []string
		for _, column := range view.columns {
			cells = append(cells, cellOf(m.Value(column)))
		}
		b.WriteString(printable.Row(cells...))
	}

	for _, e := range found.List(view.list) {
		m, _ := e.(*value.Map)
		row(m)
	}
	for id, e := range found.Map(view.list).All() {
		m, _ := e.(*value.Map)
		m = m.Clone()
		m.Set("minion", id)
		row(m)
	}

	return b.String()
}

// cellOf returns the text of a cell.
func cellOf(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return printable.Cell(v)
	case bool:
		if v {
			return "true"
		}
		return "false"
	}
	return value.StrMax(v, 1000)
}

// wantsCSV reports whether a client prefers CSV to what other endpoints send.
func wantsCSV(r *http.Request) bool {
	wanted := ranges(r.Header.Get("Accept"))
	return len(wanted) > 0 && wanted[0] == typeCSV
}
