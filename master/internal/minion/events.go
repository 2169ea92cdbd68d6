package minion

import (
	"context"
	"fmt"

	"saltern/master/internal/request"
	"saltern/master/value"
)

// onMinionEvent fires the events of a minion that the allow-list permits on the bus
// (salt/daemons/masterapi.py _minion_event).
func (s *Service) onMinionEvent(ctx context.Context, c *request.Call) (any, error) {
	for tag, data := range eventRequest(c.Load) {
		if tag == "_salt_error" && data == any(c.Load) {
			s.cfg.Quiet.Error("minion reports an error", "minion", c.ID, "message", c.Load.Map("data").Str("message"))
		}
		if !s.takeLowerMinions(ctx, c.ID, tag, data) {
			s.fireFor(c.ID, tag, data)
		}
	}
	return nil, nil
}

// fireFor fires an event on behalf of a minion, if the allow-list permits the tag.
func (s *Service) fireFor(id, tag string, data any) {
	if !s.events.Allowed(id, tag) {
		s.filtered.Add(1)
		s.cfg.Quiet.Warn(fmt.Sprintf("Filtering blacklisted event tag %.100q", tag), "minion", id)
		return
	}
	s.fireOf(id, tag, ownData(id, tag, data))
}

// fireOf fires an event and marks a minion as its origin.
func (s *Service) fireOf(minion, tag string, data *value.Map) {
	if err := s.cfg.Bus.FireFor(minion, tag, data); err != nil {
		s.cfg.Log.Warn("event of a minion cannot be fired", "minion", minion, "tag", tag, "error", err)
	}
}
