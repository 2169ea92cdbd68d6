package console

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"saltern/master/jobs"
	"saltern/master/value"
)

// option is an entry of a list to choose from: its value in the form, and a word.
type option struct{ Value, Word string }

// auditSpans are how far back the page may look.
func auditSpans() []option {
	return []option{{"1h", "1 hour"}, {"24h", "1 day"}, {"7d", "7 days"}, {"30d", "30 days"}, {"366d", "all"}}
}

// auditKinds are kinds of records, by patterns of their actions.
func auditKinds() []option {
	return []option{{"", "all"}, {"job.*", "jobs"}, {"key.*", "keys"}, {"login", "log-ins"}, {"token.*", "log-outs"}, {"*.call", "runners and wheel"}}
}

// chosenOf is what a form chose of a list, or another one.
func chosenOf(list []option, got, otherwise string) string {
	if slices.ContainsFunc(list, func(o option) bool { return o.Value == got }) {
		return got
	}
	return otherwise
}

// auditRow is one record.
type auditRow struct {
	Time, User, Proof, From, Action, Object, Result, JID string
	Bad                                                  bool // refused or failed
}

type auditPage struct {
	Since, Kind, User string
	Spans, Kinds      []option
	Rows              []auditRow
	Node              string // whose records these are
	More              bool
	Damaged, Lost     int64
	Cluster           bool
}

// maxRecords are asked for and shown: the newest.
const maxRecords = 200

func showAudit(c *Console, ctx context.Context, v *visit) (Answer, error) {
	d := auditPage{Spans: auditSpans(), Kinds: auditKinds(), User: cut(strings.TrimSpace(v.query.Get("user")), maxName), Cluster: c.cfg.Cluster}
	d.Since, d.Kind = chosenOf(d.Spans, v.query.Get("since"), "7d"), chosenOf(d.Kinds, v.query.Get("kind"), "")
	got, err := v.do(ctx, "runner", "audit.records", "since", d.Since, "user", d.User, "action", d.Kind, "last", int64(maxRecords))
	if err != nil {
		return Answer{}, err
	}
	m, ok := got.(*value.Map)
	if !ok {
		return Answer{}, &Refusal{http.StatusBadGateway, "The master gives no audit records: " + name(value.StrMax(got, maxName))}
	}
	d.Node, d.More = name(m.Str("node")), m.Value("more") == true
	d.Damaged, _ = m.Int("damaged")
	list := m.List("records")
	ended := map[string]bool{}
	for _, e := range list {
		r, _ := e.(*value.Map)
		if op := r.Str("op"); op != "" && r.Str("result") != "asked" {
			ended[op] = true
		}
		if n, ok := r.Int("lost"); ok {
			d.Lost += n
		}
	}
	for _, e := range slices.Backward(list[max(0, len(list)-maxRecords):]) {
		if r, _ := e.(*value.Map); r.Str("result") != "asked" || !ended[r.Str("op")] {
			d.Rows = append(d.Rows, auditRowOf(r))
		}
	}
	return c.render(v, "audit", http.StatusOK, page{Title: "Audit", Data: d})
}

// auditRowOf reads a record as the runner audit.records gives it.
func auditRowOf(r *value.Map) auditRow {
	row := auditRow{Action: name(r.Str("action")), Proof: name(r.Str("proof")), From: name(r.Str("from")), User: name(r.Str("user"))}
	if t, err := time.Parse(time.RFC3339Nano, r.Str("time")); err == nil {
		row.Time = t.UTC().Format("2006-01-02 15:04:05")
	}
	switch as, system := r.Str("as"), r.Str("eauth"); {
	case r.Str("proof") == "none":
		row.User += " (unproven)"
	case as != "" && as != r.Str("user"):
		row.User += " as " + name(as)
	case system != "":
		row.User += " (" + name(system) + ")"
	}
	if via := r.Str("via"); via != "" {
		row.From += " via " + name(via)
	}
	object := strings.TrimSpace(r.Str("function") + " " + r.Str("object"))
	if n, ok := r.Int("minions"); ok {
		object += " (" + strconv.FormatInt(n, 10) + ")"
	}
	row.Object, row.Result = name(object), name(r.Str("result"))
	row.Bad = row.Result == "refused" || row.Result == "failed"
	if jid := r.Str("jid"); jobs.Valid(jid) && r.Str("action") == "job.publish" {
		row.JID = jid
	}
	if detail := r.Str("detail"); detail != "" {
		row.Result += ": " + name(detail)
	}
	return row
}
