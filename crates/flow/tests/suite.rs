//! Every table passes the family's suite.

use tidemill_flow::chaining::Chaining;
use tidemill_flow::cuckoo::Cuckoo;
use tidemill_flow::double::Double;
use tidemill_flow::flow_suite;
use tidemill_flow::flowtable::FlowTable;
use tidemill_flow::hopscotch::Hopscotch;
use tidemill_flow::keystore::Keystore;
use tidemill_flow::linear::Linear;
use tidemill_flow::quadratic::Quadratic;

flow_suite!(linear, Linear, fills 1.0);
flow_suite!(quadratic, Quadratic, fills 1.0);
flow_suite!(double, Double, fills 1.0);
flow_suite!(hopscotch, Hopscotch, fills 0.9);
flow_suite!(chaining, Chaining, fills 1.0);
flow_suite!(cuckoo, Cuckoo, fills 0.95);
flow_suite!(flowtable, FlowTable, fills 0.95);
flow_suite!(keystore, Keystore, fills 0.95);
