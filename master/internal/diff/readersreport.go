package diff

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"saltern/internal/printable"
	"saltern/master/value"
)

// Codes of the answer of pillar.readers: the exit code of applianced readers.
const (
	codeRead   = 0 // some minion gets it
	codeNobody = 1
	// codeUntold means that no minion is known to get it, and of some that is not known.
	codeUntold = 2
)

// readersReport is the answer of pillar.readers. It has no values. Until finish several goroutines may add
// to it.
type readersReport struct {
	What     string
	Asked    int // minions that the target selects
	Searched int
	Readers  int // minions that get it
	Unknown  []string
	Unknowns int // minions without grains in the cache
	Faulty   int // minions whose pillar has faults (_errors): what a faulty file would give is not known
	Unrun    int // external pillars that are not run
	Groups   []*readersGroup
	More     int // findings beyond the bounds, each counted for each minion
	Faults   []string
	Notes    []string
	Seconds  float64

	mu sync.Mutex
	refusedFiles
	groups map[[sha256.Size]byte]*readersGroup
	names  int
	roots  map[string]fileOrigin // by path of a file of a git pillar
}

// readersGroup is a place of pillars, or a file, and the minions that get it in the same way.
type readersGroup struct {
	finding
	count   int
	minions []string // the first of them
	origins []sourceOrigin
}

func newReadersReport(q *readersQuestion, asked int, unrun []string) *readersReport {
	var notes []string
	for _, name := range unrun {
		notes = append(notes, fmt.Sprintf("the ext_pillar %.60q is not run: what it gives is not told", name))
	}
	return &readersReport{
		What:   printable.Clean(cut(q.String(), maxPath)),
		Asked:  asked,
		Notes:  notes,
		Unrun:  len(unrun),
		groups: map[[sha256.Size]byte]*readersGroup{},
		roots:  map[string]fileOrigin{},
	}
}

// Code returns 0 if some minion gets it, 1 if none does, and 2 if that is not known.
func (r *readersReport) Code() int {
	isFaulty := r.Faulty > 0 || len(r.Faults) > 0
	isRefused := len(r.Refused) > 0 || r.Unlisted > 0
	isUnread := r.Searched == 0 || r.Unknowns > 0 || r.Unrun > 0
	switch {
	case r.Readers > 0:
		return codeRead
	case isFaulty || isRefused || isUnread || r.More > 0:
		return codeUntold
	}
	return codeNobody
}

func (r *readersReport) noteUnknown(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Unknowns++
	if len(r.Unknown) < 20 {
		r.Unknown = append(r.Unknown, id)
	}
}

// noteMinion adds what a minion gets. reasons are those why files of its pillar are refused.
func (r *readersReport) noteMinion(id string, m *minionSearch, reasons []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Searched++
	r.More += m.more
	if len(m.found) > 0 {
		r.Readers++
	}
	if m.origins.Faults > 0 {
		r.Faulty++
	}

	for i, refusal := range m.origins.Refused {
		r.noteRefused(id, refused{file: nameOf(refusal.FileKey), reason: reasons[i]})
	}
	for _, f := range m.found {
		r.noteFinding(id, f, m)
	}
}

func (r *readersReport) noteFinding(id string, f *finding, m *minionSearch) {
	h := sha256.New()
	_ = json.NewEncoder(h).Encode([]any{f, f.path}) // a hash takes everything
	key := [sha256.Size]byte(h.Sum(nil))
	g := r.groups[key]
	if g == nil {
		if len(r.groups) >= maxReportChanges {
			r.More++
			return
		}
		g = &readersGroup{finding: *f}
		r.groups[key] = g
		for _, s := range f.Sources {
			r.noteRoot(s.File, m)
		}
	}

	g.count++
	if r.names < maxGroupMinions {
		r.names++
		g.minions = append(g.minions, id)
	}
}

func (r *readersReport) noteFault(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.Faults) < maxRefused {
		r.Faults = append(r.Faults, printable.Line(text))
	}
}

// finish sorts the report: the same search gives the same report.
func (r *readersReport) finish() {
	for _, g := range r.groups {
		slices.Sort(g.minions)
		r.Groups = append(r.Groups, g)
	}
	slices.SortFunc(r.Groups, func(a, b *readersGroup) int {
		if c := strings.Compare(a.Key, b.Key); c != 0 {
			return c
		}
		if a.count != b.count {
			return b.count - a.count
		}
		return slices.Compare(a.minions, b.minions)
	})
	r.sortRefused()
	slices.Sort(r.Unknown)
	slices.Sort(r.Faults)
}

// Data returns the report as data for programs.
func (r *readersReport) Data() *value.Map {
	groups := []any{}
	for _, g := range r.Groups {
		groups = append(groups, g.data())
	}
	untold := []any{}
	for _, f := range r.Refused {
		untold = append(untold, value.NewMap("sls", f.file, "reason", f.reason, "minions", int64(f.count), "for_example", f.minion))
	}
	return value.NewMap(
		"what", r.What,
		"code", int64(r.Code()),
		"minions", int64(r.Asked),
		"searched", int64(r.Searched),
		"readers", int64(r.Readers),
		"without_grains", int64(r.Unknowns),
		"faulty", int64(r.Faulty),
		"groups", groups,
		"not_shown", int64(r.More),
		"cannot_be_told", untold,
		"cannot_be_told_not_shown", int64(r.Unlisted),
		"faults", value.List(r.Faults),
		"notes", value.List(r.Notes),
		"seconds", float64(int(r.Seconds*100))/100,
	)
}

func (g *readersGroup) data() *value.Map {
	sources := []any{}
	for i, s := range g.Sources {
		m := value.NewMap(
			"sls", s.Name,
			"file", printable.Clean(s.File),
			"gives", s.Gives,
			"through", value.List(cleaned(s.Ways)),
		)
		if g.Key == "" {
			m.Set("keys", value.List(s.Keys))
		}
		o := g.origins[i]
		if o.line > 0 {
			m.Set("line", int64(o.line))
		}
		if o.remote != "" {
			m.Set("remote", o.remote)
			m.Set("path", o.path)
		}
		if o.change.Commit != "" {
			m.Set("commit", o.change.Commit)
			m.Set("author", printable.Clean(cut(o.change.Author, 100)))
			m.Set("time", o.change.Time.UTC().Format(time.RFC3339))
			m.Set("or_older", o.change.Cut)
		}
		if o.fault != "" {
			m.Set("commit_fault", o.fault)
		}
		sources = append(sources, m)
	}
	return value.NewMap("key", printable.Clean(g.Key), "count", int64(g.count), "minions", value.List(g.minions), "sources", sources)
}

func cleaned(texts []string) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = printable.Clean(cut(t, maxPath))
	}
	return out
}

// Text returns the report for people. With colour it has the sequences of a terminal.
func (r *readersReport) Text(colour bool) string {
	p := &painter{colour: colour}
	p.line("", "%s: %d of %d minions get it", r.What, r.Readers, r.Searched)
	if r.Unknowns > 0 {
		p.line(yellow, "%d minions have no grains on this master and were not searched: %s", r.Unknowns, strings.Join(r.Unknown, ", "))
	}
	if r.Faulty > 0 {
		p.line(yellow, "the pillars of %d minions have faults (_errors): what the faulty files give is not told; see applianced logs master", r.Faulty)
	}
	for _, note := range slices.Concat(r.Notes, r.Faults) {
		p.line(yellow, "%s", note)
	}

	for _, g := range r.Groups {
		p.line("", "")
		title := (&group{count: g.count, minions: g.minions}).title()
		if g.Key != "" {
			title = g.Key + ": " + title
		}
		p.line(bold, "%s", title)
		for i := range g.Sources {
			g.writeSource(p, i)
		}
	}
	if r.More > 0 {
		p.line("", "")
		p.line(yellow, "and %d more, which are not shown; ask for fewer keys, or fewer minions with tgt=", r.More)
	}

	if len(r.Refused) == 0 {
		return p.out.String()
	}
	p.line("", "")
	p.line(bold, "Cannot be told (it may give more):")
	for _, f := range r.Refused {
		p.line(yellow, "  %s %s; %d minions, such as %s", f.file, f.reason, f.count, f.minion)
	}
	if r.Unlisted > 0 {
		p.line(yellow, "  and more, %d times", r.Unlisted)
	}
	return p.out.String()
}

func (g *readersGroup) writeSource(p *painter, i int) {
	s := g.Sources[i]
	o := g.origins[i]
	place := s.File
	if o.remote != "" {
		place = o.remote + " " + o.path
	}
	if o.line > 0 {
		place += fmt.Sprintf(":%d", o.line)
	}

	mark, tint := "  ", green
	if !s.Gives {
		mark, tint = "  replaced: ", ""
	}
	p.line(tint, "%s%s %s", mark, s.Name, place)
	for _, way := range s.Ways {
		p.line("", "    %s", cut(way, maxPath))
	}
	if len(s.Keys) > 0 {
		p.line("", "    gives %s", cut(strings.Join(s.Keys, ", "), maxPath))
	}
	if o.change.Commit != "" {
		older := ""
		if o.change.Cut {
			older = ", or an older one that was not fetched"
		}
		p.line("", "    %.12s %s %s%s", o.change.Commit, o.change.Time.UTC().Format(time.DateOnly), cut(o.change.Author, 100), older)
	}
	if o.fault != "" {
		p.line(yellow, "    %s", o.fault)
	}
}
