package console

import (
	"context"
	"net/http"

	"saltern/master/keys"
	"saltern/master/value"
)

// runsOfMinion is how many runs the page of a minion lists.
const runsOfMinion = 20

type minionPage struct {
	minion
	Known   bool // the minion has an accepted key
	Cluster bool // the minion may be connected to another master
	Runs    *minionRuns
	Grains  []grain
	More    int    // number of grains that are not shown
	Pillar  bool   // the user may see the pillar
	Stream  string // URL of the stream that tells of new jobs; "": the page stays as it is
	// MayExplain means that the user may have the minion explained, and Explained that he asks for it.
	MayExplain bool
	Explained  *explanation
}

// minionRuns are the latest runs of a minion.
type minionRuns struct {
	List   []runRow
	Last   lastRun // the last run of states
	Failed []stateRow
	Drift  []driftRow
	More   bool
}

type runRow struct {
	lastRun
	User string
}

// stateRow is a state that failed.
type stateRow struct{ ID, Function, SLS, Comment string }

func showMinion(c *Console, ctx context.Context, v *visit) (Answer, error) {
	id := v.query.Get("id")
	if keys.ValidID(id) != nil {
		return Answer{}, &Refusal{http.StatusBadRequest, "That is not the id of a minion."}
	}

	all, err := minionsOf(ctx, v)
	if err != nil {
		return Answer{}, err
	}

	d := minionPage{minion: minion{ID: id}, Cluster: c.cfg.Cluster, Stream: c.newJobs()}
	for _, m := range all {
		if m.ID == id && (!d.Known || m.Key == "accepted") {
			d.minion, d.Known = m, true
		}
	}

	// The page of an explanation does not reload itself: the master would ask the minion each time.
	if d.MayExplain = v.mayExplain(); d.MayExplain && v.query.Get("explain") != "" {
		d.Stream = ""
		if d.Explained, err = c.explain(ctx, v, id); err != nil {
			return Answer{}, err
		}
	}

	if !d.Known && d.Explained == nil {
		return Answer{}, &Refusal{http.StatusNotFound, "No minion of that name has a key here."}
	}

	if !d.Known {
		return c.render(v, "minion", http.StatusOK, page{Title: briefName(id), Data: d})
	}

	if d.Runs, err = c.runsOf(ctx, v, id); err != nil {
		return Answer{}, err
	}
	got, err := grainsOf(ctx, v, []minion{d.minion})
	if err != nil {
		return Answer{}, err
	}

	d.Grains, d.More = values(got.Map(id), newBudget())
	d.Pillar = v.mayCall("runner", "pillar.show_pillar")
	return c.render(v, "minion", http.StatusOK, page{Title: briefName(id), Data: d})
}

// runsOf returns the latest runs of a minion, or nil if the user may not see them or the master keeps no
// history.
func (c *Console) runsOf(ctx context.Context, v *visit, id string) (*minionRuns, error) {
	if !v.mayCall("runner", "fleet.runs") || !v.mayCall("runner", "fleet.last") {
		return nil, nil
	}
	got, err := v.runCommand(ctx, "runner", "fleet.runs", "minion", id, "limit", int64(runsOfMinion))
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

	out := &minionRuns{More: m.Str("next") != ""}
	for _, e := range m.List("runs") {
		x, _ := e.(*value.Map)
		out.List = append(out.List, runRow{lastRunOf(v, x), briefName(x.Str("user"))})
	}

	got, err = v.runCommand(ctx, "runner", "fleet.last", "minion", id)
	if err != nil {
		return nil, err
	}
	m, _ = got.(*value.Map)
	out.fillLast(c, v, m.Map("minions").Map(id), id)
	return out, nil
}

// fillLast reads the last run of states of a minion.
func (r *minionRuns) fillLast(c *Console, v *visit, last *value.Map, id string) {
	if last == nil {
		return
	}
	r.Last = lastRunOf(v, last)
	for _, e := range last.List("failed_states") {
		x, _ := e.(*value.Map)
		r.Failed = append(r.Failed, stateRow{
			ID:       briefName(x.Str("id")),
			Function: briefName(x.Str("function")),
			SLS:      briefName(x.Str("sls")),
			Comment:  briefName(x.Str("comment")),
		})
	}
	for _, e := range last.List("changed_states") {
		x, _ := e.(*value.Map)
		if cause := x.Str("cause"); cause != "drift" && cause != "recurring" {
			continue
		}
		x = x.Clone()
		x.Set("minion", id)
		x.Set("time", last.Str("time"))
		x.Set("jid", last.Str("jid"))
		x.Set("corrected", last.Value("test") != true)
		r.Drift = append(r.Drift, c.driftOf(x))
	}
}
