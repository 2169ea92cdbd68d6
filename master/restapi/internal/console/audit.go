package console

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"saltern/internal/audit"
	"saltern/master/jobs"
	"saltern/master/value"
)

// option is an entry of a list from which the user chooses: its value in the form, and its text.
type option struct{ Value, Word string }

// auditSpans returns the periods before now for which the page can show records.
func auditSpans() []option {
	return []option{{"1h", "1 hour"}, {"24h", "1 day"}, {"7d", "7 days"}, {"30d", "30 days"}, {"366d", "all"}}
}

// auditKinds returns the kinds of records that the user can choose, as patterns of their actions.
func auditKinds() []option {
	return []option{
		{"", "all"},
		{"job.*", "jobs"},
		{"key.*", "keys"},
		{"login", "log-ins"},
		{"token.*", "log-outs"},
		{"*.call", "runners and wheel"},
	}
}

// chosenOf returns chosen if chosen is in the list of options, and fallback if not.
func chosenOf(list []option, chosen, fallback string) string {
	if slices.ContainsFunc(list, func(o option) bool { return o.Value == chosen }) {
		return chosen
	}
	return fallback
}

// auditRow is one record as a row of the table.
type auditRow struct {
	Node, Time, User, Proof, From, Action, Object, Result, JID string
	Bad                                                        bool // the action was refused or failed
}

type auditPage struct {
	Since, Kind, User string
	Spans, Kinds      []option
	Rows              []auditRow
	Node              string   // name of the node that answers this page
	All               bool     // the records come from all nodes except those in Unasked
	Unasked           []string // nodes whose records could not be requested
	More              bool     // there are older records that are not shown
	Damaged, Lost     int64    // number of records that cannot be read, and of records that were lost
	Cluster           bool
}

// maxRecords is how many of the newest records the page asks for and shows.
const maxRecords = 200

func showAudit(c *Console, ctx context.Context, v *visit) (Answer, error) {
	d := auditPage{
		Spans:   auditSpans(),
		Kinds:   auditKinds(),
		User:    cutText(strings.TrimSpace(v.query.Get("user")), maxName),
		Cluster: c.cfg.Cluster,
	}

	d.Since, d.Kind = chosenOf(d.Spans, v.query.Get("since"), "7d"), chosenOf(d.Kinds, v.query.Get("kind"), "")
	fun := "audit.records"
	if c.cfg.Nodes && v.mayCall("runner", "audit.all") {
		fun, d.All = "audit.all", true
	}

	got, err := v.runCommand(ctx, "runner", fun, "since", d.Since, "user", d.User, "action", d.Kind, "last", int64(maxRecords))
	if err != nil {
		return Answer{}, err
	}

	m, ok := got.(*value.Map)
	if !ok {
		return Answer{}, &Refusal{http.StatusBadGateway,
			"The master gives no audit records: " + briefName(value.StrMax(got, maxName))}
	}

	d.Node, d.More = briefName(m.Str("node")), m.Value("more") == true
	d.Damaged, _ = m.Int("damaged")
	for node, why := range m.Map("unasked").All() {
		d.Unasked = append(d.Unasked, briefName(value.Str(node)+": "+value.Str(why)))
		if len(d.Unasked) == perPage {
			break
		}
	}

	list := m.List("records")
	list = list[max(0, len(list)-maxRecords):]
	records := make([]audit.Record, len(list))
	for i, e := range list {
		r, _ := e.(*value.Map)
		records[i] = recordOf(r)
		d.Lost += int64(records[i].Lost)
	}

	for _, r := range slices.Backward(audit.Settled(records)) {
		d.Rows = append(d.Rows, auditRowOf(r))
	}

	return c.render(v, "audit", http.StatusOK, page{Title: "Audit", Data: d})
}

// recordOf reads a record as the runner audit.records returns it.
func recordOf(m *value.Map) (r audit.Record) {
	r.Time, _ = time.Parse(time.RFC3339Nano, m.Str("time")) // on an error the time is zero and is not shown
	r.Node = m.Str("node")

	r.User = m.Str("user")
	r.Proof = audit.Proof(m.Str("proof"))
	r.As = m.Str("as")
	r.Eauth = m.Str("eauth")
	r.From = m.Str("from")
	r.Via = m.Str("via")

	r.Action = m.Str("action")
	r.Object = m.Str("object")
	r.Function = m.Str("function")
	r.JID = m.Str("jid")

	r.Result = audit.Result(m.Str("result"))
	r.Detail = m.Str("detail")
	r.Op = m.Str("op")

	minions, _ := m.Int("minions")
	lost, _ := m.Int("lost")
	r.Minions = int(minions)
	r.Lost = uint64(max(lost, 0))
	return r
}

func auditRowOf(r audit.Record) auditRow {
	row := auditRow{
		Node:   briefName(r.Node),
		Action: briefName(r.Action),
		Proof:  briefName(string(r.Proof)),
		From:   briefName(r.Whence()),
		User:   briefName(r.Who()),
		Object: briefName(r.What()),
		Result: briefName(string(r.Result)),
		Bad:    r.Result == audit.Refused || r.Result == audit.Failed,
	}

	if !r.Time.IsZero() {
		row.Time = r.Time.UTC().Format("2006-01-02 15:04:05")
	}

	if jobs.Valid(r.JID) && r.Action == "job.publish" {
		row.JID = r.JID
	}

	if r.Detail != "" {
		row.Result += ": " + briefName(r.Detail)
	}

	return row
}
