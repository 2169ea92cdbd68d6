package userdata

import (
	"context"
	"time"

	"saltern/internal/pause"
	"saltern/supervisor/internal/imds"
	"saltern/supervisor/internal/probe"
)

// searchEC2 asks Amazon's instance metadata service for user-data.
func (p Places) searchEC2(ctx context.Context, s *search) {
	if !p.onEC2() {
		return
	}

	// Several tries, because the network of a machine that has just booted may come up late.
	var last error
	for range imdsTries {
		text, _, err := imds.Get(ctx, p.EC2, "user-data", MaxGiven)
		if err == nil {
			s.document("", text, shared)
			return
		}

		last = err
		if pause.For(ctx, 3*time.Second) != nil {
			break
		}
	}

	s.unreachable("", last)
}

const (
	imdsTries = 20
)

// onEC2 reports whether a metadata service can exist, according to the data of the firmware.
// Without this check, machines outside of EC2 would wait for an answer at each boot.
func (p Places) onEC2() bool {
	if p.DMI == "" {
		return true
	}
	return probe.OnEC2(p.DMI)
}
