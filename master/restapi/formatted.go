package restapi

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"saltern/master/value"
)

// Limits on the jobs and minions that formatted stores for one reader. Salt stores all jobs for as
// long as the connection lasts.
const (
	maxFormattedJobs   = 100              // number of jobs; the newest ones are stored
	maxFormattedBytes  = 256 << 10        // bytes of the jobs' events; above this bound the oldest jobs are dropped
	maxFormattedGrains = 2 << 20          // bytes of grains; above this bound minions are listed without grains
	maxFormattedIDs    = 20_000           // number of minions that are listed
	grainsAgain        = 20 * time.Second // shortest time between two requests for grains
)

// formatted tracks the jobs and minions that it has reported to a client of /ws?format_events
// (salt/netapi/rest_cherrypy/event_processor.py SaltInfo). After each event that changes one of
// them, the client gets the full list of jobs or of minions.
type formatted struct {
	jobs       *value.Map
	sizes      map[string]int
	bytes      int
	minions    *value.Map
	grainBytes int       // bytes of grains received
	asked      time.Time // when the client's minions were last asked for grains
	now        func() time.Time
	// grains starts grains.items on minions, with the rights of the client.
	grains func(ids []string)
}

func newFormatted(now func() time.Time, grains func(ids []string)) *formatted {
	return &formatted{
		jobs:    value.NewMap(),
		sizes:   map[string]int{},
		minions: value.NewMap(),
		now:     now,
		grains:  grains,
	}
}

// takeEvent returns the messages to send for an event; text is the event as JSON. It returns nil
// for an event that lacks a field that every event with its tag should have. In that case Salt ends
// the connection.
func (f *formatted) takeEvent(text string) (out []string) {
	v, err := value.ParseJSON([]byte(text))
	m, ok := v.(*value.Map)
	if err != nil || !ok {
		return nil
	}

	tag, data := strings.Split(m.Str("tag"), "/"), m.Map("data")
	if len(tag) < 2 {
		return nil
	}

	switch {
	case tag[1] == "job" && len(tag) == 4 && tag[3] == "new":
		return f.takeJob(data, len(text))
	case tag[1] == "job" && len(tag) == 5 && tag[3] == "ret":
		return f.takeReturn(tag[2], tag[4], data, len(text))
	case tag[1] == "key":
		return f.takeKeyAct(data)
	case tag[1] == "presence":
		return f.takePresent(data)
	}

	return nil
}

func lacksAny(m *value.Map, keys ...string) bool {
	return slices.ContainsFunc(keys, func(k string) bool { _, ok := m.Get(k); return !ok })
}

func (f *formatted) takeJob(data *value.Map, size int) []string {
	if lacksAny(data, "minions", "jid", "_stamp", "fun", "tgt", "tgt_type") {
		return nil
	}

	minions := value.NewMap()
	for _, id := range data.Texts("minions") {
		minions.Set(id, value.NewMap("success", false))
	}

	job := value.NewMap("jid", data.Value("jid"), "start_time", data.Value("_stamp"), "minions", minions)
	for _, k := range []string{"fun", "tgt", "tgt_type"} {
		job.Set(k, data.Value(k))
	}

	job.Set("state", "running")
	f.keepJob(data.Str("jid"), job, size)
	if data.Str("fun") == "grains.items" {
		f.minions, f.grainBytes = value.NewMap(), 0
	}

	return []string{asJSON(value.NewMap("jobs", f.jobs))}
}

func (f *formatted) takeReturn(jid, id string, data *value.Map, size int) (out []string) {
	if lacksAny(data, "return", "retcode", "success") {
		return nil
	}

	job := f.jobs.Map(jid)
	if job == nil {
		job = value.NewMap("minions", value.NewMap())
	}

	minions := job.Map("minions")
	m := minions.Map(id)
	if m == nil {
		m = value.NewMap()
		minions.Set(id, m)
	}

	for _, k := range []string{"return", "retcode", "success"} {
		m.Set(k, data.Value(k))
	}

	done := true
	for _, v := range minions.All() {
		one, _ := v.(*value.Map)
		done = done && value.Truth(one.Value("success"))
	}

	if done {
		job.Set("state", "complete")
	}

	f.keepJob(jid, job, size)
	out = append(out, asJSON(value.NewMap("jobs", f.jobs)))
	if data.Str("fun") == "grains.items" {
		known := f.minions.Map(id)
		if known == nil && f.minions.Len() >= maxFormattedIDs {
			return out
		}

		if known == nil {
			known = value.NewMap()
			f.minions.Set(id, known)
		}

		if f.grainBytes += size; f.grainBytes <= maxFormattedGrains {
			known.Set("grains", data.Value("return"))
		}

		out = append(out, f.allMinions())
	}

	return out
}

// keepJob stores a job. size is the size in bytes of the job's latest event. When the bounds are
// exceeded, keepJob drops the oldest jobs.
func (f *formatted) keepJob(jid string, job *value.Map, size int) {
	f.jobs.Set(jid, job)
	f.sizes[jid] += size
	f.bytes += size
	for _, old := range f.jobs.Keys() {
		if f.jobs.Len() <= maxFormattedJobs && f.bytes <= maxFormattedBytes {
			return
		}
		f.jobs.Delete(old)
		f.bytes -= f.sizes[old]
		delete(f.sizes, old)
	}
}

func (f *formatted) takeKeyAct(data *value.Map) []string {
	id := data.Str("id")
	switch data.Str("act") {
	case "delete":
		f.minions.Delete(id)
	case "accept":
		if f.minions.Map(id) == nil && f.minions.Len() < maxFormattedIDs {
			f.minions.Set(id, value.NewMap())
		}
	}
	return []string{f.allMinions()}
}

// takePresent drops minions that are not connected, and returns the message with the list of
// minions if the list has changed. It requests the grains of new minions, at most once in
// grainsAgain. Salt requests them each time, but reaches only one new minion, since it names the
// minions as a glob.
func (f *formatted) takePresent(data *value.Map) []string {
	if lacksAny(data, "present") {
		return nil
	}

	there := data.Texts("present")
	here := map[string]bool{}
	for _, id := range there {
		here[id] = true
	}

	changed := false
	for _, id := range f.minions.Keys() {
		if !here[id] {
			f.minions.Delete(id)
			changed = true
		}
	}

	fresh := slices.DeleteFunc(there, func(id string) bool { return f.minions.Map(id) != nil })
	if len(fresh) > 0 {
		now := f.now()
		changed = true
		if now.Sub(f.asked) >= grainsAgain {
			f.asked = now
			f.grains(fresh[:min(len(fresh), maxFormattedIDs)])
		}
	}

	if !changed {
		return nil
	}

	return []string{f.allMinions()}
}

// allMinions returns the message that lists all minions.
func (f *formatted) allMinions() string {
	list := []any{}
	for id, v := range f.minions.All() {
		known, _ := v.(*value.Map)
		m := known.Clone()
		m.Set("id", id)
		list = append(list, m)
	}
	return asJSON(value.NewMap("minions", list))
}

// formattedFor returns the formatter for a connection with this token. The caller must call free
// when the connection ends.
func (s *Server) formattedFor(ctx context.Context, q *request, token string) (f *formatted, free func(), err error) {
	place := s.pools.formats.Take(q.holder, q.class, 1)
	if place == nil {
		s.count.busy.Add(1)
		return nil, nil, &failure{http.StatusServiceUnavailable,
			"Too many listen to formatted events, or you do. Close other connections."}
	}

	return newFormatted(s.now, func(ids []string) {
		low := value.NewMap("client", "local_async", "tgt", value.List(ids), "tgt_type", "list", "fun", "grains.items")
		asks := q.forkForCommand()
		defer asks.releaseAll()
		if _, err := s.execute(ctx, asks, []any{low}, "", token); err != nil {
			s.quiet.Info("grains for a reader of formatted events were not asked for", "error", err)
		}
	}), place.Release, nil
}
