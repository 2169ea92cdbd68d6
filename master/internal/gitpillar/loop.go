package gitpillar

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"saltern/master/conf"
)

// Run fetches at the start and every interval, until ctx ends; after a fetch that
// failed the pause is retry at most. A pillar request never waits for it: it is given
// the last commit that was fetched. report is told how each fetch ended: an error of
// one line, without passwords, or nil.
func (f *Fetcher) Run(ctx context.Context, interval, retry time.Duration, report func(error)) {
	for {
		start, pause := time.Now(), interval
		err := f.Fetch(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			pause = min(interval, retry)
			err = errors.New(text(err))
		}
		report(err)
		select {
		case <-time.After(max(time.Second, pause-time.Since(start))):
		case <-ctx.Done():
			return
		}
	}
}

// text is the first fault on one line, without passwords.
func text(err error) string {
	all := []error{err}
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		all = j.Unwrap()
	}
	out, _ := conf.Shown(strings.Join(strings.Fields(all[0].Error()), " ")).(string)
	if n := len(all) - 1; n > 0 {
		out += fmt.Sprintf(" (and %d more)", n)
	}
	return out
}
