package console

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"saltern/internal/control"
	"saltern/master/value"
)

// overviewPage is the data of the first page.
type overviewPage struct {
	Keys     *keyCounts // nil: the user may not see the keys
	Present  *presence  // nil: the user may not see which minions are present
	Cluster  bool       // there are several masters, so minions may be connected to another one
	Machines *machines  // nil: there is no supervisor to ask, or the user may not see the nodes
	Master   *masterState
	Members  []member
	Jobs     []jobRow
	MayJobs  bool
	NotShown []string // parts that the page leaves out, each with the reason
}

type keyCounts struct{ Accepted, Pending, Rejected, Denied int }

type presence struct {
	Connected, Away int
	// Nodes are the names of the nodes to which the minions are connected; nil: only the master of this node was asked.
	Nodes []string
	// Unknown are the names of nodes whose minions are not known, so that these count as Away.
	Unknown []string
}

// masterState is the status of the master.
type masterState struct {
	ID       string
	Since    moment
	Problems []masterProblem
	Silent   bool // the master has not written its status lately
}

type masterProblem struct {
	What, Text string
	Since      moment
}

// member is a master of the cluster.
type member struct {
	Name, Address, State string
	Well                 bool
}

const jobsOfOverview = 8

func overview(c *Console, ctx context.Context, v *visit) (Answer, error) {
	d := overviewPage{Cluster: c.cfg.Cluster, MayJobs: v.mayCall("runner", "jobs.list_jobs_filter")}
	note := func(part string, err error) error {
		r, ok := errors.AsType[*Refusal](err)
		if ok && (r.Code == http.StatusUnauthorized || r.Code == http.StatusBadRequest) {
			d.NotShown = append(d.NotShown, part)
			return nil
		}
		return err
	}

	var all []minion
	err := error(&Refusal{Code: http.StatusUnauthorized})
	// Without this check the audit record would contain a refusal for each view of the page.
	if v.mayCall("runner", "presence.minions") {
		all, err = minionsOf(ctx, v)
	}

	switch {
	case err == nil:
		d.Keys, d.Present = countKeys(all)
		d.Master = c.masterState(v.Master.Status()) // presence.minions has just shown that the user may see the status
	case note("Minions and their presence: external_auth has to permit the runner presence.minions, and netapi_enable_clients runner.",
		err) != nil:
		return Answer{}, err
	}

	if c.cfg.Nodes {
		why := "Nodes: external_auth has to permit the runner appliance.status, and netapi_enable_clients runner."
		if v.mayCall("runner", "appliance.status") {
			if d.Machines, why, err = c.machines(ctx, v); err != nil {
				return Answer{}, err
			}
		}

		if why != "" {
			d.NotShown = append(d.NotShown, why)
		}
	}

	if d.Keys == nil && v.mayCall("wheel", "key.list_all") {
		keys, err := keyList(ctx, v)
		if err = note("Keys", err); err != nil {
			return Answer{}, err
		}
		d.Keys = &keyCounts{len(keys["minions"]), len(keys["minions_pre"]), len(keys["minions_rejected"]),
			len(keys["minions_denied"])}
	}

	if c.cfg.Cluster && v.mayCall("runner", "cluster.members") {
		if err := note("Masters of the cluster", d.addMembers(ctx, v)); err != nil {
			return Answer{}, err
		}
	}

	if d.MayJobs {
		list, err := jobList(ctx, v, jobsOfOverview, false, false)
		if err = note("Jobs", err); err != nil {
			return Answer{}, err
		}
		if d.Jobs, err = c.withOutcomes(ctx, v, list[:min(len(list), jobsOfOverview)]); err != nil {
			return Answer{}, err
		}
	}

	d.Present.addNodes(d.Keys, d.Machines)
	return c.render(v, "overview", http.StatusOK, page{Title: "Overview", Data: d, Notice: nodeDoneNotice(v.query)})
}

// addMembers adds the masters of the cluster, unless the nodes tell the same.
func (d *overviewPage) addMembers(ctx context.Context, v *visit) error {
	got, err := v.runCommand(ctx, "runner", "cluster.members")
	if err != nil {
		return err
	}

	all := members(got)
	if d.Machines != nil {
		nameMembers(all, d.Machines.Nodes)
		if !tellMore(all, d.Machines.Nodes) {
			return nil
		}
	}
	d.Members = all
	return nil
}

func countKeys(all []minion) (*keyCounts, *presence) {
	k, p := keyCounts{}, presence{}
	for _, m := range all {
		switch m.Key {
		case "accepted":
			k.Accepted++
			if m.Connected {
				p.Connected++
			} else {
				p.Away++
			}
		case "pending":
			k.Pending++
		case "rejected":
			k.Rejected++
		case "denied":
			k.Denied++
		}
	}

	return &k, &p
}

// addNodes counts the minions that are connected to any node of a cluster, if the nodes tell.
func (p *presence) addNodes(k *keyCounts, m *machines) {
	if p == nil || m == nil || len(m.Nodes) < 2 {
		return
	}

	connected := 0
	var names, unknown []string
	for _, n := range m.Nodes {
		if n.Minions != nil {
			connected += *n.Minions
			names = append(names, briefName(n.Name))
		} else if n.Role != "arbiter" { // which has no minions
			unknown = append(unknown, briefName(n.Name))
		}
	}
	if len(names) > 0 {
		p.Nodes = names
		p.Unknown = unknown
		p.Connected = connected
		p.Away = max(0, k.Accepted-connected)
	}
}

func (c *Console) masterState(s *control.Status) *masterState {
	if s == nil {
		return nil
	}
	m := &masterState{ID: briefName(s.ID), Since: c.moment(s.Started), Silent: c.cfg.Now().Sub(s.Written) > control.StatusStale}
	for _, p := range s.Problems {
		m.Problems = append(m.Problems, masterProblem{briefName(string(p.What)), p.Text, c.moment(p.Since)})
	}
	if e := s.PillarError; e != nil {
		m.Problems = append(m.Problems, masterProblem{"pillar of " + briefName(e.Minion), e.Text, c.moment(e.At)})
	}
	return m
}

// clockWord returns a time in UTC, like job ids, or "" for the zero time.
func clockWord(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// memberIsWell is the word for a master that takes part in its cluster.
const memberIsWell = "ok"

// memberWord returns the word for the state of this master in its cluster.
func memberWord(state string) string {
	if state == "member" {
		return memberIsWell
	}
	return briefName(state)
}

// members returns the masters in the answer of cluster.members.
func members(got any) (out []member) {
	m, _ := got.(*value.Map)
	if m.Len() == 0 {
		return nil
	}

	own := memberWord(m.Str("state"))
	out = append(out, member{Name: briefName(m.Str("id")), State: own + " (this one)", Well: own == memberIsWell})
	for id, e := range m.Map("peers").All() {
		p, _ := e.(*value.Map)
		state := "not reached"
		switch {
		case p.Value("alive") == true && p.Value("connected") == true:
			state = memberIsWell
		case p.Value("connected") == true:
			state = "connected, silent"
		}

		if e := p.Str("error"); e != "" {
			state += ": " + briefName(e)
		}

		out = append(out, member{Name: briefName(value.Str(id)), State: state, Well: state == memberIsWell})
		if len(out) == perPage {
			break
		}
	}

	return out
}

// tellMore reports whether the states of masters tell more than those of their nodes: whether a master is not well
// whose node answers.
func tellMore(list []member, nodes []control.NodeState) bool {
	return slices.ContainsFunc(list, func(m member) bool {
		lost := slices.ContainsFunc(nodes, func(n control.NodeState) bool { return n.Name == m.Name && n.State == "unreachable" })
		return !m.Well && !lost
	})
}

// nameMembers gives the masters the names of their nodes, as far as these are known.
func nameMembers(list []member, nodes []control.NodeState) {
	for i := range list {
		m := &list[i]
		for _, n := range nodes {
			if n.Address == m.Name && n.Name != "" {
				m.Name, m.Address = n.Name, n.Address
				break
			}
		}
	}
	slices.SortStableFunc(list, func(a, b member) int { return strings.Compare(a.Name, b.Name) })
}
