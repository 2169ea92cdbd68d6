// Package glusterctl turns a desired state ("these nodes share this volume") into a GlusterFS
// volume, step by step, and reports its state. It does not depend on the content of the volume.
//
// How to use it:
//
//	obs, err := c.Observe(ctx, desired)      // the present state: changes nothing, bounded, never hangs
//	plan := glusterctl.NewPlan(obs, desired) // what to do and why: a pure function
//	err = c.Apply(ctx, plan, progress)       // do it, one step at a time
//
// Apply runs one step, then observes and plans again, until nothing is left. So a process that is
// killed at any point begins again: the next plan omits the steps that were done. There is no
// journal that could disagree with the volume.
//
// A step that removes a copy of the data is planned only when the data is complete without that
// copy, see proof.go, and Apply runs it only if it was in the given plan. All other steps can be
// repeated safely.
//
// Only one node of a pool may apply plans at a time (glusterd refuses
// concurrent changes instead of queueing them); all may observe.
//
// Subpackages: cli sends commands to glusterd; mount mounts, probes and keeps the mount; layout
// makes the first directories on a new volume; disk finds an empty disk and prepares bricks; cert
// is the pool's own certificate authority; fakegluster is a pool in memory, for tests.
package glusterctl
