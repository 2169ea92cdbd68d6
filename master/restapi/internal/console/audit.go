package console

import (
	"cmp"
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
		{"saved.*", "saved jobs"},
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
	Node, Object, JID string
	Result, Why       string // Why is "" if there is nothing to add
	Date, Clock       string // in UTC; both are "" if the record has no time
	User, Proof       string // who acted, and how that is known
	From, Via         string // Via is "" unless another program forwarded the act
	Act, Action       string // in words, and as the record has it
	Bad               bool   // the action was refused or failed
	Outcome           *jobOutcome
	Minions           int // as the record has it: of a batch, those that answered its ping
	OfMinions         int // of a batch, all minions; 0: Minions are all
}

type auditPage struct {
	Since, Kind, User string
	Reads, Refused    bool // show also what only reads; show only what was refused or failed
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
		Reads:   v.query.Get("reads") != "",
		Refused: v.query.Get("refused") != "",
		Cluster: c.cfg.Cluster,
	}

	d.Since, d.Kind = chosenOf(d.Spans, v.query.Get("since"), "7d"), chosenOf(d.Kinds, v.query.Get("kind"), "")
	fun := "audit.records"
	if c.cfg.Nodes && v.mayCall("runner", "audit.all") {
		fun, d.All = "audit.all", true
	}

	got, err := v.runCommand(ctx, "runner", fun, "since", d.Since, "user", d.User, "action", d.Kind, "last", int64(maxRecords),
		"acts", !d.Reads, "refused", d.Refused)
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

	if err := d.fillOutcomes(c, ctx, v); err != nil {
		return Answer{}, err
	}
	return c.render(v, "audit", http.StatusOK, page{Title: "Audit", Data: d})
}

// fillOutcomes asks the master what became of the jobs. Without its answer the page shows the records alone.
func (d *auditPage) fillOutcomes(c *Console, ctx context.Context, v *visit) error {
	var ids []string
	for i := range d.Rows {
		if jid := d.Rows[i].JID; jid != "" && !slices.Contains(ids, jid) { // the rest of a batch has a record as well
			ids = append(ids, jid)
		}
	}

	byJID, err := c.outcomesOf(ctx, v, ids)
	for i := range d.Rows {
		d.Rows[i].Outcome = byJID[d.Rows[i].JID]
		if o := d.Rows[i].Outcome; o != nil && o.LeftOut > 0 && d.Rows[i].Minions+o.LeftOut == o.Minions {
			d.Rows[i].OfMinions = o.Minions
		}
	}
	return otherThanRefusal(err)
}

// recordOf reads a record as the runner audit.records returns it.
func recordOf(m *value.Map) (r audit.Record) {
	r.Time, _ = time.Parse(time.RFC3339Nano, m.Str("time")) // on an error the time is zero and is not shown
	r.Node = m.Str("node")
	r.Program = m.Str("program")

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
	if r.Action == "saved.run" && r.Result == audit.Started { // the detail is the target
		r.Function = strings.TrimSpace(r.Function + " " + r.Detail)
		r.Detail = ""
	}
	what := r
	what.Minions = 0 // the row has their number
	row := auditRow{
		Node:   briefName(r.Node),
		User:   briefName(r.User),
		Proof:  briefName(proofWord(r)),
		From:   briefName(r.From),
		Act:    briefName(actWord(r.Action)),
		Action: briefName(r.Action),
		Object: briefName(what.What()),
		Result: briefName(string(r.Result)),
		Bad:    r.Bad(),

		Minions: r.Minions,
	}

	if !r.Time.IsZero() {
		at := r.Time.UTC()
		row.Date, row.Clock = at.Format(time.DateOnly), at.Format(time.TimeOnly)
	}
	if r.Function == "mk_token" { // how Salt names a log-in; the act says it
		row.Object = briefName(r.Object)
	}
	if r.From == audit.Local {
		row.From = cmp.Or(row.Node, "the node") + " itself"
	}
	row.Via = viaWord(r)
	started := r.Action == "job.publish" || r.Action == "saved.run" && r.Result == audit.Started // else the id is of the request
	if jobs.Valid(r.JID) && started {
		row.JID = r.JID
	}
	row.Why = briefName(cmp.Or(r.Detail, refusalWord(r)))

	return row
}

// viaWord returns by which program the actor acted, or "". The console is a part of salt-api, as the API is, so that
// no record tells the two apart.
func viaWord(r audit.Record) string {
	by := cmp.Or(r.Via, r.Program)
	switch {
	case by == "salt-api":
		return "console or API"
	case r.Via != "":
		return briefName(r.Via)
	case r.From != audit.Local:
		return ""
	}

	switch r.Proof {
	case audit.Login, audit.Sudo:
		return "command line"
	case audit.Key, audit.Process:
		return "command line or a program"
	}
	return ""
}

// refusalWord returns why an act was refused whose record does not say it, or "". The record of a log-in has a reason
// only if nobody could check the password. That of an act has one unless a right is missing.
func refusalWord(r audit.Record) string {
	switch {
	case r.Result != audit.Refused:
		return ""
	case r.Action == "login":
		return "wrong name or password, or no rights"
	case slices.Contains([]string{"job.publish", "runner.call", "wheel.call"}, r.Action):
		return "not permitted"
	}
	return ""
}

// proofWords say how the actor of a record is known.
var proofWords = map[audit.Proof]string{
	audit.Login:    "by the log-in at the node",
	audit.Sudo:     "by sudo",
	audit.Process:  "by the account of the process",
	audit.Key:      "with a key file of the master",
	audit.Token:    "with a token",
	audit.Password: "with a password",
	audit.Autosign: "a rule",
	audit.Setting:  "a setting of the node",
	audit.Secret:   "with the secret of the cluster",
	audit.Peer:     "another node",
	audit.Minion:   "with the key of the minion",
	audit.Unproven: "the name as given, not proven",
}

// proofWord returns how the actor of a record is known.
func proofWord(r audit.Record) string {
	word := cmp.Or(proofWords[r.Proof], string(r.Proof))
	if r.Proof == audit.Setting && strings.HasPrefix(r.Action, "saved.") {
		word = "the schedule or a reaction"
	}
	if r.Eauth != "" && r.Proof != audit.Unproven {
		word = r.Eauth + ", " + word
	}
	if r.As != "" && r.As != r.User {
		word = "as " + r.As + ", " + word
	}
	return word
}

// actWords are the actions of records in words.
var actWords = map[string]string{
	"job.publish":    "run a job",
	"runner.call":    "call a runner",
	"wheel.call":     "call wheel",
	"key.accept":     "accept a key",
	"key.reject":     "reject a key",
	"key.delete":     "delete a key",
	"key.autosign":   "key decided by a rule",
	"key.revoke":     "key given up",
	"login":          "log in",
	"token.delete":   "log out",
	"token.revoke":   "end log-ins",
	"node.drain":     "drain a node",
	"node.undrain":   "undrain a node",
	"saved.run":      "run a saved job",
	"saved.set":      "change a saved object",
	"saved.delete":   "delete a saved object",
	"config.apply":   "apply options",
	"config.set":     "set options",
	"git.fetch":      "fetch from git",
	"system.upgrade": "upgrade the node",
	"system.reboot":  "reboot the node",
}

// actWord returns an action of a record in words, or the action itself.
func actWord(action string) string {
	return cmp.Or(actWords[action], action)
}
