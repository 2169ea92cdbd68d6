// Package image tests the appliance's image: its files (tag tree), the system
// booted by systemd in containers (tag nspawn), and the disk booted by QEMU (tag
// boot). SALTERN_TREE names the tree that `saltern-image tree` made,
// SALTERN_DIST the folder of the disks.
package image
