package merge

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"saltern/internal/pause"
	"saltern/internal/versioned"
	"saltern/master/internal/diff"
	"saltern/master/internal/git"
	"saltern/master/internal/merge/forge"
	"saltern/master/internal/merge/options"
	"saltern/master/internal/repos"
)

// worker reports about the remote of one entry. Only run uses it.
type worker struct {
	service *Service
	to      *options.Report
	client  *forge.Client
	store   *store

	record   *record       // nil: not loaded
	loaded   time.Time     // when
	asked    time.Time     // when a fetch was asked for
	term     uint64        // of the owner, at that time
	snapshot *git.Snapshot // whose tips were taken; nil: look at all
	tips     repos.Tips
	comments comments

	accepted uint64 // how many statuses the server has taken
	misses   int    // faults of the server since the round began or it took a status
	fault    error  // the last fault of a commit that waits; nil: the server has taken a status since

	pause   time.Duration // after the last failure
	failing time.Time     // since when each try has failed; zero: the last one succeeded
}

func newWorker(s *Service, to *options.Report) *worker {
	return &worker{
		service: s,
		to:      to,
		client:  forge.New(to),
		store:   newStore(s.cfg.Record(to.ID)),
	}
}

// name returns the name of the entry in messages.
func (w *worker) name() string { return fmt.Sprintf("%.200s (%s)", w.to.Remote, w.to.Form) }

// run reports until ctx ends.
func (w *worker) run(ctx context.Context) {
	for ctx.Err() == nil {
		_ = pause.About(ctx, w.round(ctx))
	}
}

// round does what there is to do. It returns the pause until the next round.
func (w *worker) round(ctx context.Context) time.Duration {
	if _, owns := w.service.cfg.Cluster.Own(); !owns {
		w.forget()
		w.noteResult(nil)
		w.noteComments(nil)
		return w.service.cfg.look
	}

	err := w.act(ctx)
	switch {
	case ctx.Err() != nil, errors.Is(err, errNotOwner), errors.Is(err, versioned.ErrConflict):
		w.forget() // another master may go on
		return w.service.cfg.look
	case errors.Is(err, diff.ErrBusy):
		return busyPause
	}

	if err == nil { // commits that the server does not take wait for themselves
		w.noteResult(w.fault)
		w.pause = 0
		return w.service.cfg.look
	}
	w.noteResult(err)
	w.pause = min(max(2*w.pause, firstPause), lastPause)
	var later *forge.LaterError
	if errors.As(err, &later) {
		return max(w.pause, later.After)
	}
	return w.pause
}

// forget forgets the record, so that the next round loads it.
func (w *worker) forget() {
	w.record = nil
	w.snapshot = nil
}

// noteResult records whether the entry works. One that fails for long is a problem of the node.
func (w *worker) noteResult(err error) {
	now := w.service.cfg.Now()
	switch {
	case err == nil && !w.failing.IsZero():
		w.failing = time.Time{}
		w.service.cfg.Log.Info("commits are reported again", "url", w.to.Remote)
	case err != nil && w.failing.IsZero():
		w.failing = now
		w.service.cfg.Log.Warn("commits cannot be reported for now", "url", w.to.Remote, "error", err)
	}

	switch {
	case err == nil:
		w.service.setFailing(w.name(), nil)
	case now.Sub(w.failing) >= reportAfter:
		w.service.setFailing(w.name(), err)
	}
}

// errNotOwner means that another master has become the owner.
var errNotOwner = errors.New("another master reports commits now")

// act takes new commits, reports those that wait one after the other, and comments.
func (w *worker) act(ctx context.Context) error {
	if err := w.load(ctx); err != nil {
		return err
	}

	w.misses = 0
	for {
		if err := w.takeTips(ctx); err != nil {
			return err
		}
		if w.mayBeOld() {
			return w.awaitFetch(ctx)
		}
		it := w.next()
		if it == nil {
			break
		}
		if err := w.handle(ctx, it); err != nil {
			return err
		}
	}

	if !slices.ContainsFunc(w.record.Open, func(it *item) bool { return it.faults > 0 }) {
		w.fault = nil
	}
	return w.comment(ctx)
}

// load loads the record. One that cannot be read is set aside, and the remote is looked at as for the
// first time.
func (w *worker) load(ctx context.Context) error {
	if w.record != nil {
		return nil
	}
	term, owns := w.service.cfg.Cluster.Own()
	if !owns {
		return errNotOwner
	}
	r, err := w.store.load(ctx)
	if errors.Is(err, versioned.ErrContent) {
		names, aside := w.store.setAside(ctx)
		if aside != nil {
			return errors.Join(err, aside)
		}
		w.service.cfg.Log.Error("the record of reported commits cannot be read: it was set aside, and only commits from now on are reported",
			"path", strings.Join(names, " "), "error", err)
		r, err = w.store.load(ctx)
	}
	if err != nil {
		return err
	}
	w.record = r
	w.term = term
	w.loaded = w.service.cfg.Now()
	return nil
}

// isOwner reports whether no other master has become the owner since the record was loaded.
func (w *worker) isOwner() bool {
	term, owns := w.service.cfg.Cluster.Own()
	return owns && term == w.term
}

// save writes the record.
func (w *worker) save(ctx context.Context) error {
	err := w.store.save(ctx, w.record)
	if err != nil {
		w.forget()
	}
	return err
}

// takeTips takes the new commits of the remote.
func (w *worker) takeTips(ctx context.Context) error {
	tips, err := w.service.cfg.Remotes.Tips(w.to.Remote, w.snapshot)
	if err != nil {
		return err
	}
	w.tips = tips
	if tips.Snapshot == w.snapshot || w.mayBeOld() {
		return nil
	}

	noted := w.record.noteForeign(tips)
	changed, full := w.record.take(tips.All, w.covers, w.service.cfg.Now().UTC())
	if changed || noted {
		if err := w.save(ctx); err != nil {
			return err
		}
	}
	if !full { // else look again when there is room
		w.snapshot = tips.Snapshot
	}
	return nil
}

// mayBeOld reports whether the master that wrote the record may have seen newer commits than this one has: this
// one has not fetched since it loaded the record. To take its tips would make old commits new.
func (w *worker) mayBeOld() bool { return !w.tips.Fetched.After(w.loaded) }

// awaitFetch asks for a fetch if none comes by itself. It returns an error if fetches fail for long.
func (w *worker) awaitFetch(ctx context.Context) error {
	now := w.service.cfg.Now()
	if now.Before(w.loaded) { // the clock was set back
		w.loaded = now
	}
	if now.Sub(w.loaded) < askAfter {
		return nil
	}

	if w.asked.Before(w.loaded) || now.Sub(w.asked) >= fetchedWithin || now.Before(w.asked) {
		w.asked = now
		_, _ = w.service.cfg.Remotes.FetchGit(ctx, w.to.Remote) // the next look at the tips shows the result
	}
	if now.Sub(w.loaded) < fetchedWithin {
		return nil
	}
	return errUnfetched
}

// errUnfetched means that the commits which this master knows may be older than those that were reported.
var errUnfetched = errors.New("the git remote cannot be fetched, so no commit is compared; see salt-run git.status")

// covers reports whether the commits of a branch are reported.
func (w *worker) covers(tip repos.Tip) bool {
	switch {
	case tip.Served, tip.Branch == w.to.Into, len(tip.Branch) > maxBranch:
		return false
	case tip.Foreign && !w.to.Forks:
		return false
	}
	return w.to.Covers(tip.Branch)
}

// next returns the commit that is to be handled now, or nil: of those that are due the first with the fewest
// faults, so that the others are tried before the server counts as away.
func (w *worker) next() *item {
	now := w.service.cfg.Now()
	var first *item
	for _, it := range w.record.Open {
		// A clock that was set back must not hold a commit up.
		isDue := it.retryAt.IsZero() || !now.Before(it.retryAt) || it.retryAt.Sub(now) > refusedPause<<maxRefusals
		if isDue && (first == nil || it.faults < first.faults) {
			first = it
		}
	}
	return first
}

// handle reports a commit: that it is compared, and then the result. It returns nil also when the
// server does not take the status of this commit: others go on.
func (w *worker) handle(ctx context.Context, it *item) error {
	ctx, stop := w.service.whileOwner(ctx)
	defer stop()
	err := w.report(ctx, it)
	var later *forge.LaterError
	var sending *sendError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errNotOwner
	case errors.As(err, &later), !errors.As(err, &sending):
		return err
	case errors.Is(err, forge.ErrRefused):
		return w.noteRefusal(ctx, it, err)
	}
	return w.noteFault(ctx, it, err)
}

// sendError is an error of setting a status.
type sendError struct{ err error }

func (e *sendError) Error() string { return e.err.Error() }

func (e *sendError) Unwrap() error { return e.err }

// setStatus sets the status of a commit, if this master is still the owner.
func (w *worker) setStatus(ctx context.Context, it *item, state forge.State, description string) error {
	if !w.isOwner() {
		return errNotOwner
	}
	if err := w.client.SetStatus(ctx, w.statusOf(it, state, description)); err != nil {
		return &sendError{err}
	}
	w.accepted++
	w.misses = 0
	w.fault = nil
	return nil
}

// report sets the status of a commit to pending, compares it, and sets the status to the result.
func (w *worker) report(ctx context.Context, it *item) error {
	if it.State == "" {
		if err := w.tellPending(ctx, it); err != nil {
			return err
		}
		if err := w.compare(ctx, it); err != nil {
			return err
		}
	}

	if err := w.setStatus(ctx, it, it.State, it.Description); err != nil {
		return err
	}
	w.service.cfg.Log.Info("a commit was reported", "url", w.to.Remote, "commit", it.Commit, "state", it.State)
	w.record.finish(it)
	return w.save(ctx)
}

// tellPending sets the status of a commit to pending, once in each process. That is recorded first, so
// that the commit gets another status whatever comes.
func (w *worker) tellPending(ctx context.Context, it *item) error {
	if it.pending {
		return nil
	}
	if !it.Told {
		it.Told = true
		if err := w.save(ctx); err != nil {
			return err
		}
	}

	err := w.setStatus(ctx, it, forge.Pending, "comparing with what is served")
	if err != nil && !errors.Is(err, forge.ErrRefused) {
		return err
	}
	it.pending = true
	return nil
}

// noteFault notes that the server has not taken the status of a commit, and may take it later. The commit
// is tried again after a pause of its own. If the server takes those of others meanwhile, the fault is this
// commit's, and counts as a refusal: at once if the token lacks the right, which GitHub may answer like a commit
// that it does not have, otherwise after patientFaults.
// noteFault returns err if the server does not take those of others either.
func (w *worker) noteFault(ctx context.Context, it *item, err error) error {
	forbidden := errors.Is(err, forge.ErrForbidden) || errors.Is(err, forge.ErrGone)
	alone := it.faults > 0 && w.accepted > it.accepted
	it.faults++
	it.accepted = w.accepted
	w.fault = err
	if alone && (forbidden || it.faults > patientFaults) || forbidden && it.Description == outdated {
		return w.noteRefusal(ctx, it, err)
	}

	it.retryAt = w.service.cfg.Now().Add(min(firstPause<<min(it.faults-1, 10), lastPause))
	w.misses++
	if w.misses >= maxMisses && !forbidden {
		return err
	}
	return nil
}

// noteRefusal notes that the server refuses a commit. After some times the commit is given up.
func (w *worker) noteRefusal(ctx context.Context, it *item, err error) error {
	it.refusals++
	if it.refusals < maxRefusals {
		it.retryAt = w.service.cfg.Now().Add(refusedPause << it.refusals)
		return nil
	}

	w.service.cfg.Log.Error("the server takes no status of a commit, which is given up", "url", w.to.Remote,
		"commit", it.Commit, "error", err)
	it.Refused = true
	it.Comment = ""
	w.record.finish(it)
	return w.save(ctx)
}

func (w *worker) statusOf(it *item, state forge.State, description string) forge.Status {
	return forge.Status{
		Remote:      w.tips.URL,
		Branch:      it.Branch,
		Commit:      it.Commit,
		State:       state,
		Description: brief(description),
		Context:     w.to.Context,
		Target:      w.target(it.Commit),
	}
}

// brief returns a description that each server takes.
func brief(text string) string {
	r := []rune(text)
	if len(r) <= forge.MaxDescription {
		return text
	}
	return string(r[:forge.MaxDescription-1]) + "…"
}

// target returns the address of the console's page for a commit, or "". If the names make it too long for a
// server, it is the page that lists the reported commits.
func (w *worker) target(commit string) string {
	if w.to.Console == nil {
		return ""
	}
	page := w.to.Console.JoinPath("diff")
	list := page.String()
	page.RawQuery = url.Values{"ref": {commit}, "remote": {w.tips.URL}, "into": {w.to.Into}}.Encode()
	for _, address := range []string{page.String(), list} {
		if len(address) <= forge.MaxTarget {
			return address
		}
	}
	return ""
}

// compare compares a commit with what is served, and records the outcome. It returns an error if
// that is to be tried again.
func (w *worker) compare(ctx context.Context, it *item) error {
	select {
	case <-w.service.turn:
		defer func() { w.service.turn <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}

	it.Tries++ // on the disk before the comparison: the master may die of it
	if err := w.save(ctx); err != nil {
		return err
	}
	out := unable(errNeverEnds)
	if it.Tries <= maxTries {
		var err error
		if out, err = w.outcome(ctx, it); err != nil {
			return errors.Join(err, w.forgetTry(ctx, it))
		}
	}

	it.State = out.state
	it.Description = out.description
	it.Comment = out.comment(w.to, it.Commit, w.target(it.Commit))
	return w.save(ctx)
}

// forgetTry takes back that a comparison was begun: it has ended, although the master may be stopping, and
// did not kill it.
func (w *worker) forgetTry(ctx context.Context, it *item) error {
	if !w.isOwner() {
		return nil
	}
	it.Tries--
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	return w.save(ctx)
}

// outcome compares the pillars, if the remote has some, and the states.
func (w *worker) outcome(ctx context.Context, it *item) (outcome, error) {
	kinds := []string{states}
	if w.tips.Pillars {
		kinds = []string{pillars, states}
	}

	var parts []part
	for _, kind := range kinds {
		report, err := w.service.cfg.Compare.Compare(ctx, diff.Request{
			To:         diff.What{Ref: it.Commit},
			Remote:     w.tips.URL,
			Into:       w.to.Into,
			Target:     "*",
			TargetType: "glob",
			States:     kind == states,
		}, func(string) {})
		switch {
		case ctx.Err() != nil:
			return outcome{}, ctx.Err()
		case errors.Is(err, diff.ErrBusy):
			return outcome{}, err
		case err != nil:
			w.service.cfg.Log.Error("a commit cannot be compared", "url", w.to.Remote, "commit", it.Commit, "error", err)
			return unable(err), nil
		}
		parts = append(parts, part{kind, report.Summary(), report.Text(false)})
	}
	return judge(parts, w.to), nil
}
