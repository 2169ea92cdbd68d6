// Package attack runs a node with the load balancer in front, its master under
// a limit of memory, and real minions beside, while a stranger attacks it, and
// proves that what an audit found does not work any more. It prints one line
// for each way of attack and each finding:
//
//	make attack-short   all ways at once for a few seconds each; part of make test
//	make attack         each way for a minute with a thousand connections, from
//	                    one address and from fifty; then the tests of all findings
//
// Root is needed: the stranger and the minions have network namespaces of
// their own, the master a control group.
//
// The stranger is a process of its own at the lowest priority, since on a test
// machine he would otherwise take the processor that in the world is his, and
// his line is one of 1 Gbit/s (SALTERN_ATTACK_LINE=MiB a second), since a line
// within the machine costs its processors; the
// node and the minions run a little above what else the machine does. All
// bounds are those of the product, in real time: see bound.
package attack
