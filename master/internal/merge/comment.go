package merge

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"saltern/master/internal/merge/forge"
)

// comments is how commenting on merge requests goes. A fault of it holds up no status.
type comments struct {
	fetched time.Time     // the fetch after which merge requests were listed last
	pause   time.Duration // after the last failure
	since   time.Time     // when that pause began
	failing time.Time     // since when each try has failed; zero: the last one succeeded
}

// comment comments on the open merge requests whose latest commit was reported. The server is asked
// for merge requests once after each fetch of the remote, while there is a comment to write: git
// servers call the web hook, which fetches, when a merge request is opened. After a fault it is asked again
// after a pause.
func (w *worker) comment(ctx context.Context) error {
	if !slices.ContainsFunc(w.record.Done, func(it *item) bool { return it.Comment != "" }) {
		w.noteComments(nil)
		return nil
	}
	sincePause := w.service.cfg.Now().Sub(w.comments.since)
	pausing := sincePause >= 0 && sincePause < w.comments.pause
	if pausing || w.tips.Fetched.Equal(w.comments.fetched) {
		return nil
	}

	ctx, stop := w.service.whileOwner(ctx)
	defer stop()
	err := w.commentOnAll(ctx)
	switch {
	case ctx.Err() != nil:
		return errNotOwner
	case w.record == nil, errors.Is(err, errNotOwner):
		return err
	case err == nil:
		w.comments.fetched = w.tips.Fetched
	}
	w.noteComments(err)
	return nil
}

// noteComments records whether commenting works. If it fails for long, that is a problem of the node.
func (w *worker) noteComments(err error) {
	c := &w.comments
	now := w.service.cfg.Now()
	name := w.name() + ", comments"
	if err == nil {
		c.pause = 0
		c.failing = time.Time{}
		w.service.setFailing(name, nil)
		return
	}

	if c.failing.IsZero() {
		c.failing = now
		w.service.cfg.Log.Warn("merge requests get no comments for now", "url", w.to.Remote, "error", err)
	}
	if now.Sub(c.failing) >= reportAfter {
		w.service.setFailing(name, err)
	}
	c.since = now
	c.pause = min(max(2*c.pause, firstPause), lastPause)
	var later *forge.LaterError
	if errors.As(err, &later) {
		c.pause = max(c.pause, later.After)
	}
}

// commentOnAll writes the comments that wait. It goes on after a fault of one, for a time, and returns the first.
func (w *worker) commentOnAll(ctx context.Context) error {
	merges, err := w.client.Merges(ctx)
	if err != nil {
		return err
	}

	began := time.Now()
	var fault error
	for _, it := range slices.Clone(w.record.Done) {
		if it.Comment == "" {
			continue
		}
		err := w.commentOnCommit(ctx, it, merges)
		if w.record == nil || errors.Is(err, errNotOwner) {
			return err
		}
		if fault == nil {
			fault = err
		}
		var later *forge.LaterError
		if fault != nil && (errors.As(err, &later) || time.Since(began) > commentsTake) {
			break
		}
	}
	return fault
}

// commentOnCommit comments on the merge requests of a commit: there may be several, also of strangers, from forks.
func (w *worker) commentOnCommit(ctx context.Context, it *item, merges []forge.Merge) error {
	var fault error
	for _, m := range merges {
		if m.Commit != it.Commit || slices.Contains(it.Commented, m.Number) || len(it.Commented) >= maxSameCommit {
			continue
		}
		if err := w.commentOn(ctx, m.Number, it); err != nil {
			fault = err
			break
		}
	}
	if fault != nil || len(it.Commented) == 0 {
		return fault
	}

	it.Comment = ""
	it.Commented = nil
	return w.save(ctx)
}

// commentOn writes a comment, in place of the one about an earlier commit. That it is written is
// recorded first: if the master dies meanwhile, the comment is lost, and not written twice.
func (w *worker) commentOn(ctx context.Context, number int64, it *item) error {
	if !w.isOwner() {
		return errNotOwner
	}
	it.Commented = append(it.Commented, number)
	if err := w.save(ctx); err != nil {
		return err
	}

	known := w.record.Comments[number]
	id, err := w.client.Comment(ctx, number, known, it.Comment)
	if known != 0 && (errors.Is(err, forge.ErrGone) || errors.Is(err, forge.ErrForbidden)) {
		// Somebody has deleted it, or another token wrote it.
		id, err = w.client.Comment(ctx, number, 0, it.Comment)
	}
	switch {
	case errors.Is(err, forge.ErrRefused), errors.Is(err, forge.ErrGone):
		w.service.cfg.Log.Error("the server takes no comment on a merge request", "url", w.to.Remote, "merge_request", number,
			"error", err)
		return nil
	case err != nil && ctx.Err() != nil:
		return errNotOwner
	case err != nil: // again after a pause
		it.Commented = slices.DeleteFunc(it.Commented, func(n int64) bool { return n == number })
		return errors.Join(err, w.save(ctx))
	}

	w.record.Comments[number] = id
	for len(w.record.Comments) > maxComments {
		delete(w.record.Comments, slices.Min(slices.Collect(maps.Keys(w.record.Comments))))
	}
	return w.save(ctx)
}
