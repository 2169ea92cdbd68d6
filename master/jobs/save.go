package jobs

import (
	"context"
	"os"
	"time"

	"saltern/master/value"
)

// submit reserves room for records, adds them to the overlay, and appends them to the journal. The
// caller must wait for the batch that submit returns.
func (c *Local) submit(ctx context.Context, recs ...*record) (*batch, error) {
	return c.submitStamped(ctx, c.stampLater, recs...)
}

// submitStamped works like submit, but lets stamp set the times of the records.
func (c *Local) submitStamped(ctx context.Context, stamp func(*record), recs ...*record) (*batch, error) {
	if err := c.reserveRoom(ctx, recs...); err != nil {
		return nil, err
	}
	for _, r := range recs {
		stamp(r)
		c.overlay.add(r)
	}
	b, err := c.journal.append(recs...)
	if err != nil {
		for _, r := range recs {
			c.withdrawRecord(r, err)
		}
	}
	return b, err
}

// stampLater gives a load or an end time a later time than that of what it replaces, also if the clock was set back: of a
// segment and a file, what has the later time counts (laterFile), and the file may stay as it is on a full disk. It waits
// for the disk.
func (c *Local) stampLater(r *record) {
	var before part
	var name string
	switch r.kind {
	case kindLoad:
		before, name = loadHeads, loadFile
	case kindEndtime:
		before, name = endHeads, endtimeFile
	default:
		return
	}

	latest := int64(0)
	if st, err := os.Stat(c.files.jobDir(r.jid) + "/" + name); err == nil {
		latest = st.ModTime().UnixNano()
	}
	_ = c.home.each(r.jid, before, func(old *record) { latest = max(latest, old.time) }) // it has logged the error
	if latest >= r.time {
		r.made = r.time
		r.time = latest + 1
	}
}

func (c *Local) submitAndWait(ctx context.Context, recs ...*record) error {
	b, err := c.submit(ctx, recs...)
	if err != nil {
		return err
	}
	return b.wait(ctx)
}

// Prep implements Cache (local_cache.prep_jid). It writes something only if nocache is set;
// otherwise SaveLoad creates the directory later.
func (c *Local) Prep(ctx context.Context, jid string, nocache bool) (string, error) {
	if jid == "" {
		jid = c.ids.New()
	}
	if err := checkJID(jid); err != nil {
		return "", err
	}
	if !nocache {
		return jid, nil
	}

	err := c.submitAndWait(ctx, &record{kind: kindPrep, jid: jid, a: []byte("n")})
	c.known.drop(jid) // it may say that the returns of the job are stored
	return jid, err
}

// SaveLoad implements Cache (local_cache.save_load).
func (c *Local) SaveLoad(ctx context.Context, jid string, load *value.Map, minions []string) error {
	awaitShown, err := c.Stage(ctx, jid, load, minions)
	if err != nil {
		return err
	}
	awaitShown(ctx)
	return nil
}

// Stage implements Cache.
func (c *Local) Stage(
	ctx context.Context,
	jid string,
	load *value.Map,
	minions []string,
) (func(context.Context), error) {
	recs, durable, err := c.stageRecords(ctx, jid, load, minions, true)
	if err != nil {
		return nil, err
	}
	// The journal has the job already: a caller whose time ends now would be told of an error, and
	// the job would be listed nevertheless.
	if err := durable.wait(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	return func(ctx context.Context) { c.waitVisible(ctx, recs) }, nil
}

// stageRecords shows a job to readers of this cache, and returns its records and the batch of the
// journal that makes them durable. show means that somebody will wait until the records are files.
func (c *Local) stageRecords(
	ctx context.Context,
	jid string,
	load *value.Map,
	minions []string,
	show bool,
) ([]*record, *batch, error) {
	if err := checkJID(jid); err != nil {
		return nil, nil, err
	}

	packed, err := c.packBounded("job load", load)
	if err != nil {
		return nil, nil, err
	}

	recs := []*record{{kind: kindLoad, jid: jid, a: packed}}
	if minions != nil {
		list, err := c.packBounded("minion list", unionTexts(minions))
		if err != nil {
			return nil, nil, err
		}
		// Write the list before the load, so that readers never see a load without a list: Salt's
		// get_load would fail.
		recs = append([]*record{{kind: kindMinions, jid: jid, a: list}}, recs...)
	}
	if show {
		for _, r := range recs {
			r.visible = make(chan struct{})
		}
	}

	stamp := c.stampLater
	if !show && !load.Bool(ChosenField) {
		// The copy of a peer's job replaces no other job. The disk may hang, and the peer's next events must not wait.
		stamp = func(*record) {}
	}
	b, err := c.submitStamped(ctx, stamp, recs...)
	if err != nil {
		return nil, nil, err
	}

	return recs, b, nil
}

// visibleWait bounds how long a caller waits for a durable load to become files.
const visibleWait = 2 * time.Second

// waitVisible waits until the files of records exist. Python's salt reads .load.p as soon as the
// master has answered its publish, and assumes that a job without that file does not exist
// (salt/client/__init__.py get_iter_returns). If the background writer takes longer than
// visibleWait, the job continues without the files.
func (c *Local) waitVisible(ctx context.Context, recs []*record) {
	t := time.NewTimer(visibleWait)
	defer t.Stop()
	for _, r := range recs {
		if c.stalled.Load() {
			return
		}

		select {
		case <-r.visible:
		case <-t.C:
			c.log.Warn("job is durable, but its files are late", "jid", r.jid)
			return
		case <-ctx.Done():
			return
		}
	}
}

// AddMinions implements Cache (local_cache.save_minions).
func (c *Local) AddMinions(ctx context.Context, jid string, minions []string, syndic string) error {
	_, err := c.addMinions(ctx, jid, minions, syndic)
	return err
}

// addMinions does what AddMinions does, and returns the record.
func (c *Local) addMinions(ctx context.Context, jid string, minions []string, syndic string) (*record, error) {
	if err := checkJID(jid); err != nil {
		return nil, err
	}
	if syndic != "" {
		if err := checkID(syndic); err != nil {
			return nil, err
		}
	}
	list, err := c.packBounded("minion list", unionTexts(minions))
	if err != nil {
		return nil, err
	}
	r := &record{kind: kindMinions, jid: jid, id: syndic, a: list}
	return r, c.submitAndWait(ctx, r)
}

// UpdateEndtime implements Cache (local_cache.update_endtime).
func (c *Local) UpdateEndtime(ctx context.Context, jid, text string) error {
	if err := checkJID(jid); err != nil {
		return err
	}
	return c.submitAndWait(ctx, &record{kind: kindEndtime, jid: jid, a: []byte(text)})
}

// SaveReturn implements Cache (local_cache.returner). It reports whether it has stored the return;
// false means that the return was already stored.
func (c *Local) SaveReturn(ctx context.Context, ret Return) (bool, error) {
	r, facts, err := c.newReturn(ret)
	if err != nil || facts.nocache {
		return false, err
	}
	r.own = true
	stored, _, err := c.commitReturn(ctx, r, facts, ret)
	return stored != nil, err
}

// newReturn packs a return as a record. The record is nil when the job does not store returns.
func (c *Local) newReturn(ret Return) (*record, jobFacts, error) {
	if err := checkJID(ret.JID); err != nil {
		return nil, jobFacts{}, err
	}

	if err := checkID(ret.ID); err != nil {
		return nil, jobFacts{}, err
	}

	facts, err := c.knownFacts(ret.JID)
	if err != nil || facts.nocache {
		return nil, facts, err
	}

	r := &record{kind: kindReturn, jid: ret.JID, id: ret.ID}
	if !ret.Time.IsZero() {
		r.time = ret.Time.UnixNano()
	}
	if r.a, err = c.packBounded("return", orEmpty(ret.Data)); err != nil {
		return nil, facts, err
	}

	if ret.Out != nil {
		if r.b, err = c.packBounded("outputter", ret.Out); err != nil {
			return nil, facts, err
		}
	}

	return r, facts, nil
}

// commitReturn writes the record r of a return to the journal, and also ret.Load if the job has no
// load. It returns the records that it has stored. If a return of the minion was already stored, it returns none, but
// that one, or nil if it cannot be read, and ErrOtherReturn if its content is another.
func (c *Local) commitReturn(
	ctx context.Context,
	r *record,
	facts jobFacts,
	ret Return,
) (stored []*record, kept *record, err error) {
	stored, written, err := c.submitReturn(ctx, r, facts, ret)
	if err != nil {
		return nil, nil, err
	}

	isOther := false
	if stored == nil {
		kept, isOther = c.keptInstead(r, written)
	}
	if written != nil {
		err = written.wait(ctx)
	}
	if err == nil && isOther {
		err = ErrOtherReturn
	}
	return stored, kept, err
}

// submitReturn works like commitReturn, but does not wait until the return is durable. It returns the record that the
// caller must wait for: r, or another one of the same return that came before, or nil if such a one is durable already.
func (c *Local) submitReturn(
	ctx context.Context,
	r *record,
	facts jobFacts,
	ret Return,
) (stored []*record, written *record, err error) {
	if err := c.reserveRoom(ctx, r); err != nil {
		return nil, nil, err
	}

	if other := c.overlay.add(r); other != nil {
		c.giveBack(r)
		c.duplicates.Add(1)
		return nil, other, nil
	}

	// Check the disk only after the overlay: a return whose files are written between the two
	// checks has left the overlay but is then on the disk.
	if c.home.holdsReturn(ret.JID, ret.ID) || exists(c.files.jobDir(ret.JID)+"/"+ret.ID+"/"+returnFile) {
		c.withdrawRecord(r, nil)
		c.duplicates.Add(1)
		return nil, nil, nil
	}

	r.needs = facts.pending
	recs := []*record{r}
	if !facts.load && ret.Load != nil {
		var first []*record
		first, r.needs = c.firstLoad(ctx, ret)
		recs = append(first, r)
	}

	if _, err := c.journal.append(recs...); err != nil {
		for _, r := range recs {
			c.withdrawRecord(r, err)
		}
		return nil, nil, err
	}

	return recs, r, nil
}

// firstLoad returns the records that make ret.Load the load of a job that has none, or nil. They
// include a list of expected minions, without which Salt's tools cannot read the load: an empty one, unless the
// job is the minion's own (salt-call), which the master that took the return has made for it. If several returns
// arrive at once, only the first gets such records; for the others firstLoad returns the load of the first.
func (c *Local) firstLoad(ctx context.Context, ret Return) (first []*record, other *record) {
	packed, err := c.packBounded("job load", ret.Load)
	if err != nil {
		c.log.Warn("job is not known and its return makes no load", "jid", ret.JID, "minion", ret.ID, "error", err)
		return nil, nil
	}

	expected := []any{}
	if ret.Load.Str("tgt") == ret.ID {
		expected = append(expected, ret.ID)
	}
	list, err := c.packBounded("minion list", expected)
	if err != nil {
		return nil, nil
	}

	minions := &record{kind: kindMinions, jid: ret.JID, a: list}
	r := &record{kind: kindLoad, jid: ret.JID, a: packed}
	if err := c.reserveRoom(ctx, minions, r); err != nil {
		return nil, nil
	}
	if other := c.overlay.addFirstLoad(r); other != nil {
		c.giveBack(minions, r)
		return nil, other
	}

	c.overlay.add(minions)
	return []*record{minions, r}, nil
}

// knownFacts returns whether a job has a load and whether the cache stores its returns. Of files it checks
// only which exist and does not read them. It keeps no facts of a load that may still fail.
func (c *Local) knownFacts(jid string) (jobFacts, error) {
	if f, ok := c.known.get(jid); ok && f.load {
		return f, nil
	}
	open := c.overlay.snapshotFacts(jid)
	dir := c.files.jobDir(jid)
	kept, err := c.home.facts(jid)
	if err != nil {
		return jobFacts{}, err
	}
	f := jobFacts{
		load:    kept.load || exists(dir+"/"+loadFile),
		nocache: open.nocache || kept.nocache || exists(dir+"/"+nocacheFile),
	}
	if !f.load {
		f.load = open.load
		f.pending = open.pending
	}
	if f.pending == nil {
		c.known.put(jid, f)
	}
	return f, nil
}

func (o *overlay) snapshotFacts(jid string) jobFacts {
	o.mu.RLock()
	defer o.mu.RUnlock()
	j := o.jobs[jid]
	if j == nil {
		return jobFacts{}
	}
	f := jobFacts{load: j.load != nil, nocache: j.prep != nil && len(j.prep.a) > 0}
	if f.load && !j.load.committed {
		f.pending = j.load
	}
	return f
}

func orEmpty(m *value.Map) *value.Map {
	if m == nil {
		return &value.Map{}
	}
	return m
}
