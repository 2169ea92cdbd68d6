// Package glusterctl turns a wish ("these nodes share this volume") into a
// GlusterFS volume, step by step, and tells how it is. It knows nothing of
// what is kept on the volume.
//
// The way in:
//
//	obs, err := c.Observe(ctx, desired)      // what is: no change, bounded, never hangs
//	plan := glusterctl.NewPlan(obs, desired) // what to do and why: a pure function
//	err = c.Apply(ctx, plan, progress)       // do it, one step at a time
//
// Apply runs one step, observes again and plans again until nothing is left,
// so a process that is killed at any point simply starts over: what is done
// already does not appear in the next plan. There is no journal that could
// disagree with the volume.
//
// Steps that take a copy of the data away are planned only when the data
// stays complete without that copy, see proof.go, and Apply runs such a step
// only if it was in the plan it was given. All other steps can be repeated
// without harm.
//
// Only one node of a pool may apply plans at a time (glusterd refuses
// concurrent changes instead of queueing them); all may observe.
//
// Subpackages: cli speaks to glusterd; mount mounts, probes and keeps the
// mount; layout makes the first directories on a new volume; disk finds an
// empty disk and prepares bricks; cert is the pool's own certificate
// authority; fakegluster is a pool in memory, for tests.
package glusterctl
