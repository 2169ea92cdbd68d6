package diff

import (
	"crypto/sha256"
	"encoding/json"
	"slices"

	"saltern/master/value"
)

// Bounds of a report.
const (
	maxGroups        = 500
	maxReportChanges = 5000 // changes of all groups
	maxGroupMinions  = 5000 // names of minions of all groups
	maxRefused       = 500
)

// Codes of a report: the exit code of applianced diff.
const (
	codeSame    = 0
	codeDiffers = 1
	codeUnable  = 2
)

// Report is the result of a comparison.
type Report struct {
	Name      string // of the runner
	From, To  string
	Asked     int // minions that the target selects
	Compared  int // minions that were compared
	Differing int // minions with a difference
	Unknown   []string
	Unknowns  int // minions without grains in the cache; Unknown names the first
	Groups    []*group
	More      int // minions with differences beyond the bounds, which are in no group
	Notes     []string
	Seconds   float64

	refusedFiles
	groups  map[[sha256.Size]byte]*group
	changes int
	hidden  bool // the text of one of the Unlisted differs
	names   int
	broken  int // minions with new errors
}

// group is one difference and the minions that have it.
type group struct {
	findings
	count   int
	minions []string // the first of them
}

func newReport(r Request, asked int, notes []string) *Report {
	name := pillarDiff
	if r.States {
		name = topDiff
	}
	return &Report{
		Name:   name,
		From:   r.From.String(),
		To:     r.To.String(),
		Asked:  asked,
		Notes:  notes,
		groups: map[[sha256.Size]byte]*group{},
	}
}

// Code returns 0 if there is no difference, 1 if there is one, and 2 if it could not be told.
func (r *Report) Code() int {
	differs := slices.ContainsFunc(r.Refused, func(f *refused) bool { return !f.same })
	switch {
	case r.Differing > 0 || differs || r.hidden:
		return codeDiffers
	case r.Compared == 0:
		return codeUnable
	}
	return codeSame
}

func (r *Report) noteUnknown(id string) {
	r.Unknowns++
	if len(r.Unknown) < 20 {
		r.Unknown = append(r.Unknown, id)
	}
}

func (r *Report) noteMinion(id string, f *findings, refusals []refusal) {
	r.Compared++
	for _, file := range refusals {
		r.noteRefusal(id, file)
	}
	if f.none() {
		return
	}

	r.Differing++
	if f.broken {
		r.broken++
	}
	key := f.sum()
	g := r.groups[key]
	if g == nil {
		size := len(f.changes) + len(f.gone) + len(f.new)
		if len(r.groups) >= maxGroups || r.changes+size > maxReportChanges {
			r.More++
			return
		}
		g = &group{findings: *f}
		r.groups[key] = g
		r.changes += size
	}

	g.count++
	if r.names < maxGroupMinions {
		r.names++
		g.minions = append(g.minions, id)
	}
}

func (r *Report) noteRefusal(id string, file refusal) {
	name := nameOf(file.FileKey)
	if file.ofPillar {
		name = "pillar: " + name
	}
	isListed := r.noteRefused(id, refused{file: name, reason: file.reason, same: file.same})
	if !isListed && !file.same {
		r.hidden = true
	}
}

// sum returns a digest of what a report shows of the findings. Minions with the same sum are one
// group, even if the values of their secrets differ.
func (f *findings) sum() [sha256.Size]byte {
	h := sha256.New()
	enc := json.NewEncoder(h)
	_ = enc.Encode([][]string{f.gone, f.new}) // a hash takes everything
	for _, c := range f.changes {
		_ = enc.Encode([]any{c.path, c.kind, c.from, c.to, c.hidden})
	}
	_ = enc.Encode(f.more)
	return [sha256.Size]byte(h.Sum(nil))
}

// finish sorts the report: the same comparison gives the same report.
func (r *Report) finish() {
	for _, g := range r.groups {
		slices.Sort(g.minions)
		r.Groups = append(r.Groups, g)
	}
	slices.SortFunc(r.Groups, func(a, b *group) int {
		if a.count != b.count {
			return b.count - a.count
		}
		return slices.Compare(a.minions, b.minions)
	})

	r.sortRefused()
	slices.Sort(r.Unknown)
}

// Data returns the report as data for programs.
func (r *Report) Data() *value.Map {
	groups := []any{}
	for _, g := range r.Groups {
		groups = append(groups, g.data())
	}
	refused := []any{}
	for _, f := range r.Refused {
		refused = append(refused, value.NewMap("sls", f.file, "reason", f.reason, "text_is_same", f.same,
			"minions", int64(f.count), "for_example", f.minion))
	}

	return value.NewMap(
		"from", r.From,
		"to", r.To,
		"code", int64(r.Code()),
		"minions", int64(r.Asked),
		"compared", int64(r.Compared),
		"differ", int64(r.Differing),
		"without_grains", int64(r.Unknowns),
		"groups", groups,
		"not_shown", int64(r.More),
		"cannot_be_told", refused,
		"cannot_be_told_not_shown", int64(r.Unlisted),
		"notes", value.List(r.Notes),
		"seconds", float64(int(r.Seconds*100))/100,
	)
}

func (g *group) data() *value.Map {
	changes := []any{}
	for _, c := range g.changes {
		m := value.NewMap("path", c.path, "change", c.kind, "secret", c.hidden)
		if c.kind != added {
			m.Set("from", c.from)
		}
		if c.kind != removed {
			m.Set("to", c.to)
		}
		changes = append(changes, m)
	}
	return value.NewMap(
		"count", int64(g.count),
		"minions", value.List(g.minions),
		"top_added", value.List(g.new),
		"top_removed", value.List(g.gone),
		"changes", changes,
		"changes_not_shown", int64(g.more),
	)
}
