package console

import (
	"context"
	"net/http"
	"net/url"

	"saltern/master/jobs"
)

type eventsPage struct {
	Tag, Stream string
	OwnOnly     bool // the user sees only events of the jobs that he started
}

func showEvents(c *Console, _ context.Context, v *visit) (Answer, error) {
	d := eventsPage{Tag: cutText(v.query.Get("tag"), maxName), OwnOnly: !v.login.AllEvents}
	d.Stream = c.base + "/stream?" + url.Values{"tag": {d.Tag}}.Encode()
	return c.render(v, "events", http.StatusOK, page{Title: "Events", Data: d})
}

// streamEvents streams events to the script of a page.
func streamEvents(_ *Console, _ context.Context, v *visit) (Answer, error) {
	e := &Events{Token: v.login.Token, JID: v.query.Get("jid"), Run: v.query.Get("run"), Tag: cutText(v.query.Get("tag"), maxName)}
	if e.JID != "" && !jobs.Valid(e.JID) || e.Run != "" && !jobs.Valid(e.Run) {
		return Answer{}, &Refusal{http.StatusBadRequest, "That is not the number of a job."}
	}
	return Answer{Code: http.StatusOK, Events: e}, nil
}
