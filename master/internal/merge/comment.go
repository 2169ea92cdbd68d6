package merge

import (
	"context"
	"errors"
	"maps"
	"slices"

	"saltern/master/internal/merge/forge"
)

// comment comments on the open merge requests whose latest commit was reported. The server is asked
// for merge requests once after each fetch of the remote, while there is a comment to write: git
// servers call the web hook, which fetches, when a merge request is opened.
func (w *worker) comment(ctx context.Context) error {
	waits := slices.ContainsFunc(w.record.Done, func(it *item) bool { return it.Comment != "" })
	if !waits || w.tips.Fetched.Equal(w.fetched) {
		return nil
	}

	ctx, stop := w.service.whileOwner(ctx)
	defer stop()
	merges, err := w.client.Merges(ctx)
	if err != nil {
		return w.ended(ctx, err)
	}
	for _, m := range merges {
		for _, it := range w.record.Done {
			if it.Comment == "" || it.Commit != m.Commit {
				continue
			}
			if err := w.commentOn(ctx, m.Number, it); err != nil {
				return w.ended(ctx, err)
			}
		}
	}
	w.fetched = w.tips.Fetched
	return nil
}

// ended returns errNotOwner if ctx has ended, otherwise err.
func (w *worker) ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errNotOwner
	}
	return err
}

// commentOn writes a comment, in place of the one about an earlier commit. That it is written is
// recorded first: if the master dies meanwhile, the comment is lost, and not written twice.
func (w *worker) commentOn(ctx context.Context, number int64, it *item) error {
	text := it.Comment
	it.Comment = ""
	if err := w.save(ctx); err != nil {
		return err
	}

	known := w.record.Comments[number]
	id, err := w.client.Comment(ctx, number, known, text)
	if known != 0 && errors.Is(err, forge.ErrGone) { // somebody has deleted it
		id, err = w.client.Comment(ctx, number, 0, text)
	}
	switch {
	case errors.Is(err, forge.ErrRefused), errors.Is(err, forge.ErrGone):
		w.service.cfg.Log.Error("the server takes no comment on a merge request", "url", w.to.Remote, "merge_request", number,
			"error", err)
		return nil
	case err != nil:
		it.Comment = text // again after a pause
		return err
	}

	w.record.Comments[number] = id
	for len(w.record.Comments) > maxComments {
		delete(w.record.Comments, slices.Min(slices.Collect(maps.Keys(w.record.Comments))))
	}
	return w.save(ctx)
}
