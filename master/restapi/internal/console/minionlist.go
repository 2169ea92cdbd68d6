package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"saltern/internal/printable"
	"saltern/master/runner"
	"saltern/master/value"
)

// Bounds of the list of minions.
const (
	minionsPerPage = 200
	maxColumns     = 8
	maxBrief       = 10_000 // minions in one answer of fleet.last
	maxInURL       = 4000   // bytes of the ids that a link to the page Run names
)

// columnsCookie keeps the columns that a user has chosen.
const columnsCookie = "saltern_columns"

// minionRow is a line of the list.
type minionRow struct {
	minion
	Run   lastRun
	Cells []cell
	cells map[string]string // texts of the columns by grain
}

// cell is the value of a grain, with the head of its column.
type cell struct{ Head, Text string }

// lastRun is the last run of states of a minion, as far as the master knows it.
type lastRun struct {
	outcome
	When           moment
	at             time.Time // zero: it ran no states
	JID, Function  string
	Drifted        int
	OK, Changed    int
	Failed, Differ int
	rank           int // of the result, from good to bad
}

// choice is an entry of a list to choose from.
type choice struct {
	Name, Word string
	Chosen     bool
}

// minionFilter selects minions.
type minionFilter struct {
	target
	Search, Presence, Result, Age, State string
}

type minionsPage struct {
	minionFilter
	Presences, Results, Ages []choice
	More                     bool // the second part of the form is open
	Known                    []choice
	Others                   string // chosen grains that are not in Known
	Heads                    []sorter
	Rows                     []*minionRow
	All                      int // minions with an accepted key
	Grains, Runs             bool
	Cluster                  bool   // minions may be connected to another master of the cluster
	RunURL, CSV, Stream      string // "" for a link that is left out
	pager
}

// grainHeads are the grains that the page offers, with their heads.
func grainHeads() []choice {
	return []choice{
		{Name: "osfinger", Word: "System"}, {Name: "saltversion", Word: "Salt"}, {Name: "ipv4", Word: "Addresses"},
		{Name: "os", Word: "os"}, {Name: "osrelease", Word: "osrelease"}, {Name: "kernelrelease", Word: "kernelrelease"},
		{Name: "cpuarch", Word: "cpuarch"}, {Name: "num_cpus", Word: "num_cpus"}, {Name: "mem_total", Word: "mem_total"},
		{Name: "virtual", Word: "virtual"}, {Name: "fqdn", Word: "fqdn"}, {Name: "roles", Word: "roles"},
	}
}

// standardSort is the column by which the list is sorted if nobody has chosen one.
const standardSort = "name"

const standardColumns = "osfinger,saltversion,ipv4"

var grainName = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,64}$`)

// columnsOf returns the columns that the query names, or else the cookie, or the standard ones. chosen means
// that the query names them.
func (c *Console) columnsOf(v *visit) (columns []string, chosen bool) {
	text := c.cookieOf(v, columnsCookie)
	if given, ok := v.query["columns"]; ok {
		text = strings.Join(given, ",")
		chosen = true
	}
	for name := range strings.SplitSeq(cmp.Or(strings.Trim(text, ", "), standardColumns), ",") {
		if name = strings.TrimSpace(name); grainName.MatchString(name) && !slices.Contains(columns, name) && len(columns) < maxColumns {
			columns = append(columns, name)
		}
	}
	return columns, chosen
}

func headOf(column string) string {
	for _, h := range grainHeads() {
		if h.Name == column {
			return h.Word
		}
	}
	return column
}

func choices(chosen string, pairs ...string) (out []choice) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, choice{pairs[i], pairs[i+1], pairs[i] == chosen})
	}
	return out
}

func filterOf(q url.Values) minionFilter {
	return minionFilter{
		target:   targetOf(q.Get),
		Search:   strings.TrimSpace(cutText(q.Get("q"), maxName)),
		Presence: q.Get("presence"),
		Result:   q.Get("result"),
		Age:      q.Get("age"),
		State:    strings.TrimSpace(cutText(q.Get("state"), maxName)),
	}
}

// ages are the ages of a run by which the page filters: younger than a span, or older.
var ages = map[string]time.Duration{"1h": time.Hour, "1d": 24 * time.Hour, "7d": 7 * 24 * time.Hour}

// selects reports whether the filter selects a minion. It leaves out the target and the state, which the
// master has applied.
func (f *minionFilter) selects(r *minionRow, now time.Time) bool {
	if f.Search != "" && !strings.Contains(strings.ToLower(r.ID), strings.ToLower(f.Search)) {
		return false
	}
	if f.Presence != "" && (f.Presence == "connected") != r.Connected {
		return false
	}

	switch {
	case f.Result == "":
	case f.Result == "drifted" && r.Run.Drifted == 0:
		return false
	case f.Result != "drifted" && f.Result != r.Run.Name:
		return false
	}

	within, older := strings.CutPrefix(f.Age, "over-")
	if span, ok := ages[within]; ok {
		return older != (now.Sub(r.Run.at) < span)
	}
	return true
}

func showMinions(c *Console, ctx context.Context, v *visit) (Answer, error) {
	d := minionsPage{
		minionFilter: filterOf(v.query),
		Grains:       v.mayCall("runner", "cache.grains"),
		Runs:         v.mayCall("runner", "fleet.last"),
		Cluster:      c.cfg.Cluster,
		Stream:       c.newJobs(),
	}
	columns, chosen := c.columnsOf(v)
	if !d.Grains {
		columns = nil
	}

	rows, problem, err := d.rows(ctx, v)
	if err != nil {
		return Answer{}, err
	}

	table := strings.HasSuffix(v.Path, ".csv")
	by, descending := strings.CutPrefix(v.query.Get("sort"), "-")
	ofGrain := slices.Contains(columns, by)
	if table || ofGrain {
		if err := fillCells(ctx, v, rows, columns); err != nil {
			return Answer{}, err
		}
	}
	sortMinions(rows, by, descending)
	if table {
		return minionTable(rows, columns, d.Runs), nil
	}

	var lo, hi int
	lo, hi, d.pager = pageOf(len(rows), minionsPerPage, c.base+"/minions", v.query)
	d.RunURL = d.runURL(c, rows)
	d.Rows = rows[lo:hi]
	if !ofGrain {
		if err := fillCells(ctx, v, d.Rows, columns); err != nil {
			return Answer{}, err
		}
	}

	d.fillForm(c, v, columns)
	a, err := c.render(v, "minions", http.StatusOK, page{Title: "Minions", Data: d, Problem: problem})
	if err == nil && chosen {
		const year = 365 * 24 * time.Hour
		a.Header.Add("Set-Cookie", c.cookie(columnsCookie, strings.Join(columns, ","), year))
	}
	return a, err
}

// rows returns the minions that the filter selects, without their grains. It sets d.All, and clears d.Runs if
// the master keeps no history. problem says why the master cannot apply the target.
func (d *minionsPage) rows(ctx context.Context, v *visit) (out []*minionRow, problem string, err error) {
	all, err := minionsOf(ctx, v)
	if err != nil {
		return nil, "", err
	}
	all = slices.DeleteFunc(all, func(m minion) bool { return m.Key != "accepted" })
	d.All = len(all)

	var runs map[string]lastRun
	if d.Runs {
		if runs, err = lastRuns(ctx, v, d.State); err != nil {
			return nil, "", err
		}
		d.Runs = runs != nil
	}

	hit, err := d.matched(ctx, v, all)
	if r, ok := errors.AsType[*Refusal](err); ok && r.Code != http.StatusServiceUnavailable {
		return nil, r.Text, nil
	}
	if err != nil {
		return nil, "", err
	}
	for _, m := range all {
		run, ran := runs[m.ID]
		if !ran {
			run.outcome = outcomeOf("never")
		}
		row := &minionRow{minion: m, Run: run}
		if hit[m.ID] && (d.State == "" || ran) && d.selects(row, v.now) {
			out = append(out, row)
		}
	}
	return out, "", nil
}

// lastRuns returns the last runs of all minions, or of those whose last run had a state that failed or
// changed something. It returns nil if the master keeps no history, or refuses the user after all.
func lastRuns(ctx context.Context, v *visit, state string) (map[string]lastRun, error) {
	out := map[string]lastRun{}
	for after := ""; ; {
		kv := []any{"brief", true, "limit", int64(maxBrief), "after", after}
		if state != "" {
			kv = append(kv, "state", state)
		}
		got, err := v.runCommand(ctx, "runner", "fleet.last", kv...)
		if isUnauthorized(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		m, ok := got.(*value.Map)
		if !ok {
			return nil, nil
		}
		for id, e := range m.Map("minions").All() {
			x, _ := e.(*value.Map)
			out[value.Str(id)] = lastRunOf(v, x)
		}
		next := m.Str("next")
		if next <= after {
			return out, nil
		}
		after = next
	}
}

func lastRunOf(v *visit, m *value.Map) lastRun {
	r := lastRun{
		outcome:  outcomeOf(m.Str("result")),
		JID:      m.Str("jid"),
		Function: briefName(m.Str("function")),
		Drifted:  count(m, "drifted"),
		OK:       count(m, "ok"),
		Changed:  count(m, "changed"),
		Failed:   count(m, "failed"),
		Differ:   count(m, "would_change"),
	}
	r.rank = slices.Index(outcomes(), r.outcome)
	if t, err := time.Parse(time.RFC3339, m.Str("time")); err == nil {
		r.at = t
		r.When = momentAt(v.now, t)
	}
	return r
}

// fillCells asks the master for the grains of the columns.
func fillCells(ctx context.Context, v *visit, rows []*minionRow, columns []string) error {
	if len(rows) == 0 || len(columns) == 0 {
		return nil
	}
	ids := []any{}
	for i := range rows {
		ids = append(ids, rows[i].ID)
	}
	got, err := v.runCommand(ctx, "runner", "cache.grains", "tgt", ids, "tgt_type", "list", runner.Only, value.List(columns),
		runner.Alone, true)
	if isUnauthorized(err) {
		return nil // the master refuses the user after all
	}
	if err != nil {
		return err
	}

	m, _ := got.(*value.Map)
	for i := range rows {
		g := m.Map(rows[i].ID)
		rows[i].cells = map[string]string{}
		for _, column := range columns {
			text := grainText(g, column)
			rows[i].cells[column] = text
			rows[i].Cells = append(rows[i].Cells, cell{headOf(column), text})
		}
	}
	return nil
}

// grainText returns the value of a grain as one short line.
func grainText(g *value.Map, column string) string {
	v := g.Value(column)
	switch {
	case column == "ipv4":
		return addresses(g)
	case v == nil:
		return ""
	}
	if list, ok := v.([]any); ok {
		var out []string
		for _, e := range list[:min(len(list), 10)] {
			out = append(out, value.StrMax(e, maxName))
		}
		return briefName(strings.Join(out, ", "))
	}
	return briefName(value.StrMax(v, maxName))
}

// sortMinions sorts rows that are in the order of their names.
func sortMinions(rows []*minionRow, by string, descending bool) {
	order := func(a, b *minionRow) int { return 0 }
	switch by {
	case "", "name":
		if descending {
			slices.Reverse(rows)
		}
		return
	case "presence":
		order = func(a, b *minionRow) int { return cmp.Compare(flagNumber(b.Connected), flagNumber(a.Connected)) }
	case "heard":
		order = func(a, b *minionRow) int { return cmp.Compare(a.heard, b.heard) }
	case "result":
		order = func(a, b *minionRow) int { return a.Run.rank - b.Run.rank }
	case "run":
		order = func(a, b *minionRow) int { return a.Run.at.Compare(b.Run.at) }
	default:
		order = func(a, b *minionRow) int { return compareTexts(a.cells[by], b.cells[by]) }
	}

	slices.SortStableFunc(rows, func(a, b *minionRow) int {
		if descending {
			return order(b, a)
		}
		return order(a, b)
	})
}

func flagNumber(b bool) int {
	if b {
		return 1
	}
	return 0
}

// compareTexts compares numbers as numbers.
func compareTexts(a, b string) int {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	if errX == nil && errY == nil {
		return cmp.Compare(x, y)
	}
	return cmp.Compare(strings.ToLower(a), strings.ToLower(b))
}

// fillForm fills in the form and the heads of the table.
func (d *minionsPage) fillForm(c *Console, v *visit, columns []string) {
	d.Presences = choices(d.Presence, "", "any", "connected", "connected", "away", "not connected")
	d.Ages = choices(d.Age, "", "any time", "1h", "in the last hour", "1d", "in the last day", "7d", "in the last 7 days",
		"over-1d", "not for a day", "over-7d", "not for 7 days")
	results := []string{"", "any"}
	for _, o := range outcomes() {
		if o.Name != "answered" && o.Name != "absent" {
			results = append(results, o.Name, o.Word)
		}
	}
	d.Results = choices(d.Result, append(results, "drifted", "drifted")...)
	d.More = d.Target != "" || d.State != "" || v.query.Has("columns")

	var others []string
	d.Known = grainHeads()
	for _, column := range columns {
		i := slices.IndexFunc(d.Known, func(k choice) bool { return k.Name == column })
		if i < 0 {
			others = append(others, column)
			continue
		}
		d.Known[i].Chosen = true
	}
	d.Others = strings.Join(others, ", ")

	heads := []string{"name", "Minion", "presence", "Presence"}
	if d.Runs {
		heads = append(heads, "result", "Last result", "run", "Last run of states")
	}
	for _, column := range columns {
		heads = append(heads, column, headOf(column))
	}
	heads = append(heads, "heard", "Last heard")
	for i := 0; i < len(heads); i += 2 {
		d.Heads = append(d.Heads, c.sorterOf(v, "/minions", heads[i], heads[i+1]))
	}
	d.CSV = c.linkTo("/minions.csv", v.query, "page", "")
}

// sorterOf returns the head of a column by which the page at path sorts with sort=name, the other way round
// with sort=-name.
func (c *Console) sorterOf(v *visit, path, name, word string) sorter {
	s := sorter{Word: word}
	to := name
	switch cmp.Or(v.query.Get("sort"), standardSort) {
	case name:
		s.Dir = "ascending"
		to = "-" + name
	case "-" + name:
		s.Dir = "descending"
	}
	s.URL = c.linkTo(path, v.query, "sort", to, "page", "")
	return s
}

// linkTo returns the URL of a page with a query in which some fields are replaced, or removed by "". It leaves
// out the columns, which the browser keeps.
func (c *Console) linkTo(path string, q url.Values, kv ...string) string {
	next := url.Values{}
	for k, v := range q {
		if k != "columns" {
			next[k] = v
		}
	}
	for i := 0; i < len(kv); i += 2 {
		next.Del(kv[i])
		if kv[i+1] != "" {
			next.Set(kv[i], kv[i+1])
		}
	}
	if len(next) == 0 {
		return c.base + path
	}
	return c.base + path + "?" + next.Encode()
}

// runURL returns the URL of the form to run something on the minions of the list, or "" if they cannot be
// named in a URL.
func (d *minionsPage) runURL(c *Console, rows []*minionRow) string {
	if len(rows) == 0 {
		return ""
	}
	if d.Search+d.Presence+d.Result+d.Age+d.State == "" {
		return c.base + "/run?" + url.Values{"tgt": {cmp.Or(d.Target, "*")}, "type": {d.Type}, "look": {"1"}}.Encode()
	}

	var ids []string
	size := 0
	for i := range rows {
		ids = append(ids, rows[i].ID)
		if size += len(url.QueryEscape(rows[i].ID)) + 3; size > maxInURL || strings.ContainsAny(rows[i].ID, ", ") {
			return ""
		}
	}
	return c.base + "/run?" + url.Values{"tgt": {strings.Join(ids, ",")}, "type": {"list"}, "look": {"1"}}.Encode()
}

// minionTable returns the rows as CSV (RFC 4180).
func minionTable(rows []*minionRow, columns []string, runs bool) Answer {
	var b strings.Builder
	heads := []string{"minion", "connected", "last_heard"}
	if runs {
		heads = append(heads, "result", "run", "function", "ok", "changed", "would_change", "failed", "drifted")
	}
	b.WriteString(printable.Row(append(heads, columns...)...))
	for i := range rows {
		r := rows[i]
		line := []string{printable.Cell(r.ID), strconv.FormatBool(r.Connected), r.Seen.ISO}
		if runs {
			line = append(line, r.Run.Name, r.Run.When.ISO, printable.Cell(r.Run.Function))
			for _, n := range []int{r.Run.OK, r.Run.Changed, r.Run.Differ, r.Run.Failed, r.Run.Drifted} {
				line = append(line, strconv.Itoa(n))
			}
		}
		for _, column := range columns {
			line = append(line, printable.Cell(r.cells[column]))
		}
		b.WriteString(printable.Row(line...))
	}
	return Answer{
		Code: http.StatusOK,
		Body: b.String(),
		Header: http.Header{
			"Content-Type":        {"text/csv; charset=utf-8"},
			"Content-Disposition": {`attachment; filename="minions.csv"`},
		},
	}
}
