//! One file, many hosts: the nodes of a cluster, what runs on them, and who starts it.
