package explain

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"saltern/internal/control"
	"saltern/master/cache"
	"saltern/master/internal/appliance"
	"saltern/master/internal/request"
	"saltern/master/keys"
)

// facts describe a minion. causesOf finds the causes in them.
type facts struct {
	id        string
	now       time.Time
	serverTTL time.Duration

	key, denied       keys.Entry
	hasKey, hasDenied bool
	near              []string // ids that look alike
	manager           string   // minion that manages the resource with this id; "": it is none

	here     bool // connected to this master
	places   control.MinionPlaces
	unplaced error     // why the other nodes are not known; nil: they are
	asked    time.Time // last request to this master that the minion proved
	before   time.Time // last sign of life before the start of this master; zero: none
	listened time.Time // last answer to this master to a job that was published; zero: none
	version  string    // of Salt, by the grains

	signIn    SignIn
	hasSignIn bool
	refusal   *request.Refusal // of a request after asked, from the minion's address; nil: none

	answer          answer
	unanswered      []control.ExplainedJob
	unansweredSince time.Time

	pillarFault *control.PillarError // nil: its last pillar had no faults
	problems    []control.Problem    // of the master, that keep minions from being answered
	orders      bool                 // there may be minions of lower masters
	syndic      bool                 // it passes jobs on to a lower master
}

func (f *facts) keyState() string {
	switch {
	case f.hasKey:
		return f.key.State.String()
	case f.hasDenied:
		return keys.Denied.String()
	}
	return "none"
}

func (f *facts) accepted() bool { return f.hasKey && f.key.State == keys.Accepted }

// mayBeBelow reports whether the minion may be one of a lower master.
func (f *facts) mayBeBelow() bool {
	return f.orders && !f.hasKey && !f.hasDenied && f.manager == "" && keys.ValidID(f.id) == nil
}

// connected reports whether the minion is connected to any node. Who has just answered a job that was published
// listens, even if its subscription comes from another address than its requests.
func (f *facts) connected() bool {
	return f.here || f.places.Connected || f.answer.answers > 0 || f.listensLately()
}

func (f *facts) listensLately() bool {
	return !f.listened.IsZero() && f.now.Sub(f.listened) < silentFor
}

// seen returns when any node last heard from the minion.
func (f *facts) seen() time.Time {
	latest := f.asked
	for _, at := range []time.Time{f.before, f.places.Seen, f.answer.at} {
		if at.After(latest) {
			latest = at
		}
	}
	return latest
}

// outdated reports whether another sign of life came later than something that happened at at. Signs within
// silentFor count as one: clocks of nodes differ, and a sign-in is a sign of life, too.
func (f *facts) outdated(at time.Time) bool { return f.seen().Sub(at) > silentFor }

// signedInLast reports whether the sign-in at this master is the last that was heard of the minion.
func (f *facts) signedInLast() bool {
	return f.hasSignIn && f.signIn.At.After(f.asked) && !f.outdated(f.signIn.At)
}

// hasRefusal reports whether the last that was heard of the minion is a request that was refused.
func (f *facts) hasRefusal() bool { return f.refusal != nil && !f.outdated(f.refusal.At) }

func (f *facts) connection() control.ExplainedConnection {
	out := control.ExplainedConnection{
		Connected: f.connected(),
		Node:      cmp.Or(f.places.Node, f.answer.peer),
		Address:   f.places.Address,
		Version:   f.version,
		Unasked:   f.places.Unasked,
	}
	if at := f.seen(); !at.IsZero() {
		out.Seen = at.UTC()
	}
	if f.hasSignIn {
		out.SignIn = f.signIn.At.UTC()
		out.Address = cmp.Or(out.Address, f.signIn.From.String())
	}
	return out
}

// lookAtKey looks at the keys of the minion, and what this master has heard from it.
func (s *Service) lookAtKey(f *facts) {
	c := &s.cfg
	f.key, f.hasKey = c.Keys.Lookup(f.id)
	f.denied, f.hasDenied = c.Keys.Denied(f.id)
	s.lookAtRequests(f)
	f.orders = c.Options.OrderMasters
	f.syndic = c.Syndics.Known(f.id)
	f.manager = c.Resources.Manager(f.id)
	if !f.hasKey && !f.hasDenied {
		f.near = s.nearNames(f.id)
	}

	f.before = c.Presence.Before(f.id, f.accepted(), false)
	f.listened, _ = c.Presence.LastAnswer(f.id)
	_, f.here = slices.BinarySearch(c.Presence.IDs(), f.id)
	if grains, ok := c.Cache.Get(cache.Grains, f.id); ok {
		f.version = grains.Str("saltversion")
	}
	f.pillarFault = c.Pillars.FaultOf(f.id)
}

// lookAtPlaces asks the other nodes where the minion is.
func (s *Service) lookAtPlaces(ctx context.Context, f *facts) {
	ctx, cancel := context.WithTimeout(ctx, partFor)
	defer cancel()
	places, err := s.cfg.Nodes.Minion(ctx, f.id)
	if err != nil {
		places = control.MinionPlaces{}
	}
	if errors.Is(err, appliance.ErrNone) {
		err = nil
		if s.cfg.Options.ClusterID != "" {
			err = errors.New("this master has no applianced, and cannot ask the others")
		}
	}
	if f.here && places.Node == "" {
		places.Node = s.cfg.Node
	}
	if peer, ok := s.cfg.Notify.ConnectedTo(f.id); ok && !f.here && !places.Connected {
		places.Connected = true
		places.Node = peer
	}
	f.places = places
	f.unplaced = err
}

// lookAtMaster looks at the jobs that are open, and at the faults of the master.
func (s *Service) lookAtMaster(ctx context.Context, f *facts) {
	list, since := s.cfg.Unanswered.Of(f.id)
	f.unansweredSince = since.UTC()
	for _, job := range list {
		// A return may have come before the master learned of the job.
		if s.hasReturned(ctx, job.JID, f.id) {
			continue
		}
		f.unanswered = append(f.unanswered, control.ExplainedJob{
			JID:      job.JID,
			Function: job.Function,
			User:     job.User,
			Start:    job.Start.UTC(),
		})
	}

	for _, p := range s.cfg.Problems.List() {
		switch p.What {
		case control.JobCacheFault, control.ClusterFault, control.DeliveryFault, control.CacheDirFault, control.KeyRotationFault:
			f.problems = append(f.problems, p)
		}
	}
}

// hasReturned reports whether the job cache has a minion's return of a job.
func (s *Service) hasReturned(ctx context.Context, jid, id string) bool {
	type lister interface {
		Returned(ctx context.Context, jid string) (map[string]bool, error)
	}
	if cache, ok := s.cfg.Jobs.(lister); ok { // it reads no returns
		returned, err := cache.Returned(ctx, jid)
		return err == nil && returned[id]
	}
	returns, err := s.cfg.Jobs.Returns(ctx, jid)
	return err == nil && returns.Map(id) != nil
}

// nearNames returns at most ten ids with a key that look like an id.
func (s *Service) nearNames(id string) (near []string) {
	const most = 10
	for _, st := range []keys.State{keys.Accepted, keys.Pending, keys.Rejected} {
		for _, other := range s.cfg.Keys.List(st) {
			if looksLike(id, other) {
				near = append(near, other)
			}
			if len(near) == most {
				return near
			}
		}
	}
	return near
}

// looksLike reports whether two ids differ in upper case, in their domain, or in two letters at most.
func looksLike(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	hostA, _, _ := strings.Cut(a, ".")
	hostB, _, _ := strings.Cut(b, ".")
	if a == b || hostA == hostB {
		return true
	}
	const most = 2
	longer := max(len(a), len(b))
	return longer-min(len(a), len(b)) <= most && longer > 2*most && distance(a, b) <= most
}

// distance returns the edit distance of two texts (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			changed := diagonal
			if a[i] != b[j] {
				changed++
			}
			diagonal = row[j+1]
			row[j+1] = min(changed, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
