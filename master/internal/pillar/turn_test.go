package pillar

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"saltern/master/value"
)

// TestSharedLookLeavesTheRequest: a repeated request that shares another's look into the cache goes on with
// its own content, which Park gives back only without an error.
func TestSharedLookLeavesTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewService(ServiceConfig{})
		look := make(chan struct{})
		ask := func() (Question, error) {
			q := Question{Request: Request{ID: "m1"}, Nonce: "same", Bytes: 1}
			packed := q.Request
			q.Park = func(wait func(context.Context) error) (Request, error) {
				if err := wait(t.Context()); err != nil {
					return Request{}, err
				}
				return packed, nil
			}
			_, err := s.waitTurn(t.Context(), s.lookUps, &q, func(context.Context, Request) (*value.Map, error) {
				<-look
				return nil, errNotCached
			})
			return q, err
		}

		var first error
		done := make(chan struct{})
		go func() { defer close(done); _, first = ask() }()
		synctest.Wait()
		var second Question
		var shared error
		repeated := make(chan struct{})
		go func() { defer close(repeated); second, shared = ask() }()
		synctest.Wait()
		close(look)
		<-done
		<-repeated

		if !errors.Is(first, errNotCached) || !errors.Is(shared, errNotCached) {
			t.Errorf("the looks end with %v and %v", first, shared)
		}
		if second.ID != "m1" {
			t.Errorf("the request that waited is of the minion %q", second.ID)
		}
	})
}
