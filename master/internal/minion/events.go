package minion

import (
	"context"
	"fmt"

	"saltern/master/internal/request"
	"saltern/master/value"
)

// onMinionEvent puts a minion's events on the bus, except those that the allow-list does not permit
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

// fireFor fires an event on behalf of a minion if the minion may fire it.
func (s *Service) fireFor(id, tag string, data any) {
	if !s.events.Allowed(id, tag) {
		s.filtered.Add(1)
		s.cfg.Quiet.Warn(fmt.Sprintf("Filtering blacklisted event tag %.100q", tag), "minion", id)
		return
	}
	s.fireOf(id, tag, ownData(id, tag, data))
}

// fireOf fires an event whose origin is a minion.
func (s *Service) fireOf(minion, tag string, data *value.Map) {
	if err := s.cfg.Bus.FireFor(minion, tag, data); err != nil {
		s.cfg.Log.Warn("event of a minion cannot be fired", "minion", minion, "tag", tag, "error", err)
	}
}
