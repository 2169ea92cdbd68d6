package restapi

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"time"

	"saltern/internal/ratelimit"
	"saltern/master/event"
	"saltern/master/internal/source"
	"saltern/master/jobs"
	"saltern/master/value"
)

const (
	// maxOwners bounds the jobs whose users are stored. Overflow policy: the user of the oldest job
	// is dropped; salt-api asks the master when it needs that user again.
	maxOwners = 16384
	// askAgain is how long salt-api asks the master about no job after the master has left one such
	// request unanswered: the master's job cache may hang.
	askAgain = 10 * time.Second
)

// questionRate returns the rate limit of requests about jobs whose start event salt-api has not
// received. The rate is limited because minions may invent job ids. Above the limit, salt-api sends
// events of such jobs only to readers that may see all events.
func questionRate() ratelimit.Rate { return ratelimit.Rate{Burst: 100, PerSecond: 20} }

// jobUser is the user who started a job, a runner or a wheel function, and the system of
// external_auth that authenticated this user.
type jobUser struct {
	name, system string
	// anySystem means that a Salt master started the job, so the job does not name the system.
	anySystem bool
}

// isOwnedBy reports whether the user started the job.
func (u jobUser) isOwnedBy(user owner) bool {
	return u.name != "" && u.name == user.name && (u.anySystem || u.system != "" && u.system == user.system)
}

// jobUserOf reads the user of a job from the job's start event, or from the master's answer.
func jobUserOf(data *value.Map) jobUser {
	system, said := data.Get(event.EauthField)
	text, _ := system.(string)
	return jobUser{name: data.Str("user"), system: text, anySystem: !said}
}

// partOf returns the job that an event belongs to. tells reports whether the data of the event
// reliably name the job's user. The data of returns and of progress events do not, since a minion
// chooses them.
func partOf(tag string) (jid string, tells bool) {
	if jobs.Valid(tag) {
		return tag, false // Salt's masters fire these old tags in addition to the present ones
	}

	rest, ok := strings.CutPrefix(tag, "salt/")
	if !ok {
		return "", false
	}

	kind, rest, _ := strings.Cut(rest, "/")
	jid, part, _ := strings.Cut(rest, "/")
	if !jobs.Valid(jid) {
		return "", false
	}

	switch kind {
	case "job":
		return jid, part == "new"
	case "run", "wheel":
		return jid, part == "new" || part == "ret"
	case "state_result":
		return jid, false
	}

	return "", false
}

// owners records which user started each running job. Its methods may be called concurrently.
type owners struct {
	// ask returns the user of a job, or the zero jobUser if the master does not know the job. ask
	// may be nil: salt-api does not ask the master.
	ask func(ctx context.Context, jid string) (jobUser, error)
	now func() time.Time

	mu         sync.Mutex
	users      map[string]jobUser
	order      []string // keys of users, the oldest first
	asked      ratelimit.Bucket
	quietUntil time.Time // time before which no request is sent
}

// learnUser records the user of a job. A later call for the same job changes nothing, so that no
// user can take over the id of a running job.
func (o *owners) learnUser(jid string, u jobUser) {
	o.mu.Lock()
	defer o.mu.Unlock()
	known, ok := o.users[jid]
	if ok && known.name != "" {
		return
	}

	if !ok {
		if len(o.order) >= maxOwners {
			delete(o.users, o.order[0])
			o.order = o.order[1:]
		}
		o.order = append(o.order, jid)
	}

	o.users[jid] = u
}

// hearEvent records the user of a job if the event reliably names that user.
func (o *owners) hearEvent(e event.Event) {
	if jid, tells := partOf(e.Tag); tells {
		o.learnUser(jid, jobUserOf(e.Data))
	}
}

// lookUp returns the user of a job; found is false if the user is not known. In that case mayAsk
// reports whether the caller may ask the master; if so, lookUp counts the request.
func (o *owners) lookUp(jid string) (u jobUser, found, mayAsk bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if u, found = o.users[jid]; found {
		return u, true, false
	}
	now := o.now()
	if o.ask == nil || now.Before(o.quietUntil) {
		return jobUser{}, false, false
	}
	return jobUser{}, false, o.asked.Take(now, questionRate(), 1)
}

// askLater prevents requests to the master for the next askAgain.
func (o *owners) askLater() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.quietUntil = o.now().Add(askAgain)
}

// userOf returns the user of the job that an event belongs to. It may ask the master and wait up to
// a second for the answer. If the event belongs to no job or to an unknown job, userOf returns the
// zero jobUser.
func (o *owners) userOf(ctx context.Context, tag string) jobUser {
	jid, _ := partOf(tag)
	if jid == "" {
		return jobUser{}
	}

	u, known, mayAsk := o.lookUp(jid)
	if known || !mayAsk {
		return u
	}

	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	u, err := o.ask(ctx, jid)
	if err != nil {
		o.askLater()
		return jobUser{}
	}

	o.learnUser(jid, u)
	return u
}

// userOfJob asks the master for the user of a job. The request contains the key of this program's
// account, without which the master does not answer it.
func (s *Server) userOfJob(ctx context.Context, jid string) (jobUser, error) {
	c := s.clientFor(call{})
	defer c.Close()
	ctx = source.With(ctx, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	m, err := c.UserOfJob(ctx, jid)
	if err != nil || m == nil {
		return jobUser{}, err
	}
	return jobUserOf(m), nil
}
