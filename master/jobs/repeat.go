package jobs

import (
	"bytes"
	"time"

	"saltern/internal/durable"
	"saltern/master/history/summary"
	"saltern/master/msgpack"
	"saltern/master/value"
)

// returnFields are the fields of a return that its minion has sent.
var returnFields = []string{"return", "retcode", "success"}

// mostRevision is more than the bytes that a revision of the files adds to a return.
const mostRevision = 4096

// keptInstead returns the record that the cache keeps instead of r, a return of the same minion for the same job. It
// returns nil if that one cannot be read. open is the kept record if it is in the overlay, otherwise nil. isOther means
// that the two differ in what the minion sent.
func (c *Local) keptInstead(r, open *record) (kept *record, isOther bool) {
	kept = open
	if kept == nil {
		kept = c.readReturn(r.jid, r.id)
	}
	return kept, kept != nil && !sameReturn(kept, r)
}

// readReturn returns the durable return of a minion for a job that [Local.Returns] returns, or nil.
func (c *Local) readReturn(jid, id string) (found *record) {
	hash := c.home.returnHash(jid, id)
	ofMinion := part{wanted: func(what uint64) bool { return what == hash }}
	_ = c.home.each(jid, ofMinion, func(r *record) { // it has logged the error
		if r.id == id {
			found = r
		}
	})
	if found != nil {
		return found
	}

	dir := c.files.jobDir(jid) + "/" + id + "/"
	content, st, err := durable.ReadFile(dir+returnFile, maxFile, durable.Refuse)
	if err != nil || len(content) == 0 {
		return nil
	}
	found = &record{
		kind: kindReturn,
		time: st.ModTime().UnixNano(),
		jid:  jid,
		id:   id,
		a:    content,
	}
	found.b, _ = durable.Read(dir+outFile, maxFile)
	return found
}

// sameReturn reports whether two records have the same of what the minion sent. What cannot be decoded is the same.
// The revision of the files does not count: the master that takes a return adds it.
func sameReturn(kept, r *record) bool {
	if !bytes.Equal(kept.b, r.b) {
		return false
	}
	if bytes.Equal(kept.a, r.a) {
		return true
	}
	if len(kept.a) > len(r.a)+mostRevision { // a small return makes no master decode a big one
		return false
	}

	before, err := msgpack.Decode(kept.a, msgpack.DefaultLimits)
	if err != nil {
		return true
	}
	now, err := msgpack.Decode(r.a, msgpack.DefaultLimits)
	if err != nil {
		return true
	}

	one := returnMap(before)
	other := returnMap(now)
	for _, name := range returnFields {
		if !samePacked(one.Value(name), other.Value(name)) {
			return false
		}
	}
	return true
}

// asKept returns a return with the time and the revision of the record that the cache keeps of it, so that a peer
// without it stores the same.
func asKept(ret Return, kept *record) Return {
	ret.Time = time.Unix(0, kept.time)
	v, err := msgpack.Decode(kept.a, msgpack.DefaultLimits)
	data, isMap := v.(*value.Map)
	if err != nil || !isMap {
		return ret
	}

	ret.Data = ret.Data.Clone()
	ret.Load = ret.Load.Clone()
	for _, m := range []*value.Map{ret.Data, ret.Load} {
		m.Delete(summary.RevisionField)
		if revision, ok := data.Get(summary.RevisionField); ok {
			m.Set(summary.RevisionField, revision)
		}
	}
	return ret
}
