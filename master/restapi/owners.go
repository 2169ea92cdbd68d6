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
	// maxOwners bounds the jobs whose users are remembered. Overflow policy: the oldest is
	// forgotten, and the master is asked for it when it is needed.
	maxOwners = 16384
	// askAgain is how long no question is asked after one without an answer: the storage of the
	// jobs may hang.
	askAgain = 10 * time.Second
)

// questionRate bounds questions about jobs of which nothing was heard: minions may make up job ids.
// Beyond it, events of such jobs go only to readers of all events.
func questionRate() ratelimit.Rate { return ratelimit.Rate{Burst: 100, PerSecond: 20} }

// jobUser is who started a job, a runner or a wheel function.
type jobUser struct {
	name, system string
	// anySystem: a master of Salt started it, which does not say which system proved its user.
	anySystem bool
}

// isOwnedBy reports whether somebody started the job.
func (u jobUser) isOwnedBy(who owner) bool {
	return u.name != "" && u.name == who.name && (u.anySystem || u.system != "" && u.system == who.system)
}

// jobUserOf reads who started a job from the event of its start, or from the master's answer.
func jobUserOf(data *value.Map) jobUser {
	system, said := data.Get(event.EauthField)
	text, _ := system.(string)
	return jobUser{name: data.Str("user"), system: text, anySystem: !said}
}

// partOf returns the job that an event belongs to. tells: the event says who started it. A minion
// chooses the data of returns and progress, so those do not tell.
func partOf(tag string) (jid string, tells bool) {
	if jobs.Valid(tag) {
		return tag, false // tags that Salt's masters still fire beside today's
	}

	rest, ok := strings.CutPrefix(tag, "salt/")
	if !ok {
		return "", false
	}

	kind, rest, _ := strings.Cut(rest, "/")
	jid, what, _ := strings.Cut(rest, "/")
	if !jobs.Valid(jid) {
		return "", false
	}

	switch kind {
	case "job":
		return jid, what == "new"
	case "run", "wheel":
		return jid, what == "new" || what == "ret"
	case "state_result":
		return jid, false
	}

	return "", false
}

// owners knows who started the running jobs. Its methods may be called concurrently.
type owners struct {
	// ask returns who started a job, or the zero jobUser. It may be nil.
	ask func(ctx context.Context, jid string) (jobUser, error)
	now func() time.Time

	mu         sync.Mutex
	users      map[string]jobUser
	order      []string // of users, the oldest first
	asked      ratelimit.Bucket
	quietUntil time.Time // nothing is asked until then
}

// learnUser notes who started a job. The first user stays: somebody else must not take over the id
// of a running job.
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

// hearEvent takes from an event who started a job.
func (o *owners) hearEvent(e event.Event) {
	if jid, tells := partOf(e.Tag); tells {
		o.learnUser(jid, jobUserOf(e.Data))
	}
}

// lookUp returns who started a job. Where that is not known it counts a question; mayAsk: it may be
// asked.
func (o *owners) lookUp(jid string) (u jobUser, known, mayAsk bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if u, known = o.users[jid]; known {
		return u, true, false
	}
	now := o.now()
	if o.ask == nil || now.Before(o.quietUntil) {
		return jobUser{}, false, false
	}
	return jobUser{}, false, o.asked.Take(now, questionRate(), 1)
}

// askLater stops questions for a while.
func (o *owners) askLater() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.quietUntil = o.now().Add(askAgain)
}

// userOf returns who started the job that an event belongs to. For events of no job, and for
// unknown jobs, it returns the zero jobUser.
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

// userOfJob asks the master who started a job, with the key of this program's account.
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
